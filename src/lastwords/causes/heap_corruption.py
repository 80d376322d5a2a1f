"""The bookkeeping of the memory allocator was overwritten.

malloc keeps sizes and pointers between the blocks that it gives out. Code that writes past the end of a block,
frees a block twice, or frees what malloc never gave out, destroys them; glibc finds it at a later malloc or free
and ends the process with words like `free(): invalid pointer` or `corrupted size vs. prev_size`. Sometimes it
does not find it, and faults inside malloc itself, or in Python's garbage collector, which follows every object.

An item that dies of this and passes when it is tried again alone met what an earlier one had done.

The function named is where the damage was **found**. Where it was done is mostly earlier and elsewhere; a double
free is the exception, since its second free is the named one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.causes import alone
from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.said import not_its_signal, passes_through, said
from lastwords.causes.words import memory_checks, native_steps, place, place_facts, was_sent
from lastwords.evidence.frames import blamed
from lastwords.evidence.model import Evidence

_DOUBLE = re.compile(r"double free(?! or corruption \((out|top)\))|attempting double-free", re.IGNORECASE)
_OVERRUN = re.compile(
    r"corrupted size|invalid (next |old |)size|corrupted top size|corrupted double-linked|"
    r"double free or corruption \((out|top)\)|invalid next->prev_inuse|mismatching next->prev_size|"
    r"unsorted double linked list|memory corruption|heap-buffer-overflow|bad (leading|trailing) pad byte|"
    r"unaligned (tcache|fastbin) chunk|smallbin double linked|largebin double linked|top size|invalid chunk size"
)
_FOREIGN = re.compile(
    r"(free|realloc|munmap_chunk)\(\): invalid pointer|attempting free on address|alloc-dealloc-mismatch|"
    r"bad ID: Allocated using API|invalid pointer"
)
_WORDS = re.compile(
    r"\b(malloc|free|realloc|calloc|munmap_chunk|malloc_consolidate|memalign)\(\): (?!.*[Cc]annot allocate)\w+|"
    r"corrupted size vs\. prev_size|corrupted double-linked list|double free or corruption|"
    r"malloc: \*\*\* error for object|AddressSanitizer: (heap-buffer|attempting (double-)?free|alloc-dealloc)|"
    r"_PyMem_Debug\w+: bad (ID|leading|trailing)|bad (leading|trailing) pad byte|"
    r"<jemalloc>: .*(double free|corrupt|size mismatch)"
)
_COMPLAINS = re.compile(
    r"malloc_printerr|_PyMem_DebugCheckAddress|_PyMem_DebugRawFree|_PyObject_DebugDumpAddress"
)
_ALLOCATOR = re.compile(
    r"((__)?(GI_)?(__libc_)?(malloc|free|cfree|realloc|calloc|memalign)|_int_(malloc|free|realloc|memalign)\w*|"
    r"unlink_chunk|malloc_consolidate|tcache_(get|put)\w*|sysmalloc|systrim|pymalloc_(alloc|free)|"
    r"_PyObject_(Malloc|Free|Realloc)|PyMem_\w+|je_\w+|arena_\w+_bin\w*|tc_(malloc|free|new|delete)\w*)"
    r"(\.\w+)*$"
)
_COLLECTOR = re.compile(r"(visit_(decref|reachable|move)|subtract_refs|update_refs|gc_collect_main)(\.\w+)*$")


def words_of(evidence: Evidence) -> str | None:
    return said(evidence, _WORDS, "heap-corruption")


def found_by(evidence: Evidence) -> str | None:
    """The allocator's own check that failed."""
    return passes_through(evidence, _COMPLAINS)


def in_allocator(evidence: Evidence) -> str | None:
    """The allocator's function that a fault happened in."""
    return passes_through(evidence, _ALLOCATOR, most=1)


def judge(evidence: Evidence) -> Iterator[Reason]:
    words, check = words_of(evidence), found_by(evidence)
    if words is not None:
        yield Reason("its_words", f"it said: {words}")
    elif check is not None:
        yield Reason("check_failed", f"{check} is called only where a block is damaged")
    yield from not_its_signal(evidence, words, "SIGABRT", "SIGSEGV", "SIGBUS")
    if evidence.fault is not None and not was_sent(evidence):
        yield from _judge_place(evidence)
    yield from alone.passed_without(evidence, "passed_alone")


def _judge_place(evidence: Evidence) -> Iterator[Reason]:
    inside, collector = in_allocator(evidence), passes_through(evidence, _COLLECTOR, most=4)
    if inside is not None:
        yield Reason("in_allocator", f"the fault is inside {inside}: what it keeps between blocks is damaged")
    elif collector is not None:
        yield Reason("in_collector", f"{collector} follows every Python object, and met a damaged one")
    else:
        yield Reason("elsewhere", "the fault is not inside an allocator")


def kind_of(evidence: Evidence) -> str | None:
    words = words_of(evidence)
    if words is None:
        return None
    kinds = (("double-free", _DOUBLE), ("overrun", _OVERRUN), ("invalid-pointer", _FOREIGN))
    return next((kind for kind, pattern in kinds if pattern.search(words)), None)


def sentence(evidence: Evidence) -> str:
    where = f", found by {place(evidence)}" if blamed(evidence) else ""
    match kind_of(evidence):
        case "double-free":
            return f"A block of memory was freed twice{where}."
        case "overrun":
            return f"Something wrote past a block of memory{where}."
        case "invalid-pointer":
            return f"Something was freed that malloc never gave out{where}."
    return f"The allocator's own data was overwritten{where}."


def facts(evidence: Evidence) -> Facts:
    fault = evidence.fault
    return {
        "kind": kind_of(evidence),
        "message": words_of(evidence) or (fault.abort_message if fault else None),
        **place_facts(evidence),
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    if kind_of(evidence) == "double-free":
        yield Step(text=f"find the two owners of what {place(evidence)} frees: only one may free it")
    else:
        yield Step(text="look for the first wrong write, not here: it was done earlier, and only found here")
    yield from memory_checks(evidence)
    yield from native_steps(evidence)


CAUSE = Cause(
    id="heap-corruption",
    title="The allocator's own data was overwritten",
    doc=__doc__,
    needs=("fault", "native_stack"),
    prior=-3.0,
    weights={
        "its_words": 6.4,
        "check_failed": 5.5,
        "in_allocator": 4.2,
        "in_collector": 3.2,
        "passed_alone": 0.7,
        "elsewhere": -3.0,
        "other_ending": -1.5,
        "other_signal": -8.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("double-free", "heap-overrun"),
    near_misses=("abort", "use-after-free", "stack-smashing", "failed-assertion"),
)
