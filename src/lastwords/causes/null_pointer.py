"""Native code used a pointer that was null.

The address lies in the first 64 KiB, where Linux never maps anything: code took a pointer that was null, added
the offset of a field or an element to it, and read or wrote there. The usual reasons are a return value that
was not checked, an object that was already torn down, and, with ctypes, a missing `argtypes` or `restype`.

A pointer that is not null but wild is another cause; so is an address that no CPU can have, for which the
kernel also reports address 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes import alone, heap_corruption
from lastwords.causes.cause import SIGNAL_FITS, Cause, Facts, Reason, Step
from lastwords.causes.mentioned import first, reason
from lastwords.causes.words import (
    NULL_PAGES,
    hexadecimal,
    met_signal,
    native_steps,
    not_this_signal,
    place,
    place_facts,
    place_first,
    sent_by,
    source_line,
)
from lastwords.evidence.frames import blamed, left_code, short_function
from lastwords.evidence.model import Evidence, Fault

VERBS = {"read": "read", "write": "wrote", "execute": "jumped to"}


def judge(evidence: Evidence) -> Iterator[Reason]:
    against = [*_other_end(evidence), *sent_by(evidence)]
    yield from against
    if not any(one.name == "other_signal" for one in against):
        yield from _judge_address(evidence)


def _other_end(evidence: Evidence) -> Iterator[Reason]:
    """A debugger's stack of a crash need not say how the process ended."""
    if met_signal(evidence) is not None or first(evidence, "null-argument") is None:
        yield from not_this_signal(evidence, "SIGSEGV")


def _judge_address(evidence: Evidence) -> Iterator[Reason]:
    if met_signal(evidence) is not None:
        yield Reason(SIGNAL_FITS, "it touched memory that it must not touch (SIGSEGV)")
    fault = evidence.fault
    if fault is None or fault.address is None:
        yield from reason(evidence, "null_argument", "null-argument")
        return
    if fault.canonical is False or fault.code_name == "SI_KERNEL":
        yield Reason("no_address", "the address cannot exist on this CPU; the kernel reports such ones as 0")
    elif fault.address >= NULL_PAGES:
        yield Reason("far_from_null", f"the address {fault.address:#x} is far from null")
    else:
        yield Reason("near_null", _near_null(fault))
        yield from alone.died_again(evidence, "died_alone")
        if fault.pc and left_code(fault):
            yield Reason("jumped_there", "it jumped there: a number that is no address was called")
        yield from _judge_operand(evidence, fault.address)
        if inside := heap_corruption.in_allocator(evidence):
            yield Reason("in_allocator", f"the pointer is one of {inside}'s own, which was overwritten")


def _near_null(fault: Fault) -> str:
    verb = VERBS.get(fault.access or "", "touched")
    offset = f"null plus {fault.address}" if fault.address else "null"
    return f"it {verb} address {hexadecimal(fault.address)}: {offset}"


def _judge_operand(evidence: Evidence, address: int) -> Iterator[Reason]:
    found = evidence.instruction
    if found is not None and any(one.address == address for one in found.memory):
        yield Reason("operand_agrees", f"{found.text}  has just that address in its registers")


def sentence(evidence: Evidence) -> str:
    fault = evidence.fault
    if fault is not None and fault.access == "execute":
        by = f", by {place(evidence)}" if blamed(evidence) else ""
        return f"A null pointer was called as if it were a function{by}."
    verb = {"read": "read", "write": "wrote"}.get(fault.access or "" if fault else "", "went")
    return f"{place_first(evidence)} {verb} through a null pointer."


def facts(evidence: Evidence) -> Facts:
    fault = evidence.fault
    return {
        "address": hexadecimal(fault.address) if fault else None,
        "offset": fault.address if fault else None,
        "access": fault.access if fault else None,
        **place_facts(evidence),
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    frame = blamed(evidence)
    if _is_ctypes(evidence):
        yield Step(
            text="declare argtypes and restype of the function that ctypes calls, and check pointers for None"
        )
    elif frame is not None and frame.file and frame.line:
        yield Step(text=f"look at {source_line(frame)}: a pointer used there is null")
    elif frame is not None and frame.function:
        yield Step(
            text=f"look in {short_function(frame.function)} for a pointer that is used without a check for null"
        )
    yield from native_steps(evidence)


def _is_ctypes(evidence: Evidence) -> bool:
    frames = evidence.native_stack.frames if evidence.native_stack else ()
    return any(
        "_ctypes" in (frame.library or "") or "libffi" in (frame.library or "") for frame in frames[:8]
    )


CAUSE = Cause(
    id="null-pointer",
    title="Native code used a null pointer",
    doc=__doc__,
    needs=("fault", "instruction", "native_stack"),
    prior=-3.0,
    weights={
        SIGNAL_FITS: 1.5,
        "near_null": 5.0,
        "null_argument": 4.0,
        "operand_agrees": 0.7,
        "died_alone": 0.4,
        "no_address": -6.0,
        "far_from_null": -6.0,
        "in_allocator": -5.0,
        "jumped_there": -6.0,
        "sent": -7.0,
        "other_ending": -1.5,
        "other_signal": -8.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("null-dereference", "thread-race", "jump-to-null"),
    near_misses=("wild-pointer", "impossible-address", "use-after-free", "jump-into-data"),
)
