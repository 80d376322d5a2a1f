"""A thread used up its stack.

Every call takes a piece of the thread's stack until it returns. A function that calls itself without an end, or
too deep for the data it was given, comes to the end of the stack, and the next call faults there. Python's own
limit (`sys.setrecursionlimit`) stops Python functions that call each other directly; it does not know how large
the stack is, and C code in between, a raised limit, or a thread with a small stack take the guard away.

The sign is an address just past the end of this very thread's stack, with the stack pointer beside it. Which
functions call each other is read from the saved stack; how deep they are is reckoned from the size of one round.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import bare, reason
from lastwords.causes.said import not_its_signal, said
from lastwords.causes.words import file_name, place_first, sent_by
from lastwords.evidence.frames import NEAR_STACK, blamed, left_code, overflows, short_function
from lastwords.evidence.model import Evidence, Fault, Recursion

SMALL_STACK = 1 << 20
FEW_ROUNDS = 2000
_WORDS = re.compile(
    r"has overflowed its stack|AddressSanitizer: stack-overflow|fatal runtime error: stack overflow|"
    r"[Cc]annot recover from stack overflow|Stack overflow detected",
)


def words_of(evidence: Evidence) -> str | None:
    return said(evidence, _WORDS, "stack-overflow")


def judge(evidence: Evidence) -> Iterator[Reason]:
    words, fault = words_of(evidence), evidence.fault
    if words is not None:
        yield Reason("its_words", f"it said: {words}")
    elif bare(evidence, "SIGSEGV"):
        yield Reason("could_be", "a stack that overflowed ends in SIGSEGV, and nothing recorded where it was")
        yield from reason(evidence, "limit_raised", "recursion-raised")
        yield from reason(evidence, "same_frames", "python-recursion")
    against = [*not_its_signal(evidence, words, "SIGSEGV", "SIGBUS"), *sent_by(evidence)]
    if words is not None and fault is not None and fault.signal == "SIGABRT":
        against = []  # Rust and Python see it coming, and abort
    yield from against
    if fault is None or fault.address is None or any(reason.name == "other_signal" for reason in against):
        return
    yield from _judge_address(fault)
    if evidence.recursion is not None:
        yield Reason("recurses", _rounds(evidence.recursion))


def _judge_address(fault: Fault) -> Iterator[Reason]:
    near = fault.distance_to_sp is not None and abs(fault.distance_to_sp) < NEAR_STACK
    if overflows(fault) and fault.address is not None and fault.stack_low is not None:
        past = fault.stack_low - fault.address
        yield Reason("past_the_end", f"{fault.address:#x} is {past} bytes past the end of its stack")
        size = stack_size(fault)
        if size is not None and size < SMALL_STACK:
            yield Reason("small_stack", f"the stack of this thread has {amount(size)} only")
    elif left_code(fault):
        yield Reason("jumped_there", "it jumped to the address: a stack does not overflow by that")
    elif near and fault.stack_low is None and fault.access != "execute":
        yield Reason("near_stack_pointer", "the address is next to the stack pointer")
    elif near:
        yield Reason("inside_the_stack", "the address is not past the end of the stack")
    elif fault.distance_to_sp is not None:
        yield Reason("far_from_stack", "the address is far from the stack pointer")


def _rounds(found: Recursion) -> str:
    depth = f" about {about(found.depth)} times" if found.depth else " again and again"
    if found.python is not None:
        return f"{_python_place(found)} calls itself through C code{depth}"
    if len(found.functions) == 1:
        return f"{short_function(found.function)} calls itself{depth}"
    names = " → ".join(short_function(name) for name in reversed(found.functions[:6]))
    return f"{names} → …{depth}"


def _python_place(found: Recursion) -> str:
    assert found.python is not None
    return f"{found.python.function} ({file_name(found.python.file)}:{found.python.line or '?'})"


def about(number: int) -> str:
    """Three digits: the reckoning has no more."""
    rounded = round(number, 3 - len(str(number))) if number > 999 else number
    return f"{rounded:,}"


def amount(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def stack_size(fault: Fault | None) -> int | None:
    if fault is None or fault.stack_low is None or fault.stack_high is None:
        return None
    return fault.stack_high - fault.stack_low


def kind_of(evidence: Evidence) -> str:
    found, size = evidence.recursion, stack_size(evidence.fault)
    is_shallow = found is None or (found.depth is not None and found.depth < FEW_ROUNDS)
    if size is not None and size < SMALL_STACK and is_shallow:
        return "small-stack"
    return "python" if found is not None and found.python is not None else "c"


def thread_of(evidence: Evidence) -> str | None:
    """`main`, `python` or `native`: who started the thread decides how its stack is made larger."""
    fault, stack = evidence.fault, evidence.python_stack
    if fault is None or fault.is_main_thread is None:
        return None
    if fault.is_main_thread:
        return "main"
    return "python" if stack is not None and stack.is_exact else "native"


def sentence(evidence: Evidence) -> str:
    found, size = evidence.recursion, stack_size(evidence.fault)
    room = f" of {amount(size)}" if size else ""
    if kind_of(evidence) == "small-stack":
        return (
            f"{place_first(evidence)} needed more than the {amount(size or 0)} of stack that its thread has."
        )
    if found is None:
        return "It used up the stack of its thread: something calls itself without an end."
    depth = f" about {about(found.depth)} times" if found.depth else " again and again"
    who = _python_place(found) if found.python else place_first(evidence)
    through = " through C code" if found.python else ""
    return f"{who} called itself{through}{depth}, and the stack{room} was full."


def facts(evidence: Evidence) -> Facts:
    found, frame, fault = evidence.recursion, blamed(evidence), evidence.fault
    name = frame.function if frame else None
    if found is not None:
        name = found.python.function if found.python else found.function
    return {
        "kind": kind_of(evidence),
        "function": name,
        "functions": " → ".join(reversed(found.functions)) if found else None,
        "library": frame.library if frame else None,
        "depth": found.depth if found else None,
        "bytes_each": found.bytes_each if found else None,
        "stack_size": stack_size(fault),
        "thread": thread_of(evidence),
        "thread_name": fault.thread_name if fault else None,
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    found = evidence.recursion
    if kind_of(evidence) == "small-stack":
        yield _larger_stack(evidence, "give")
        return
    if found is not None and found.python is not None:
        yield Step(text=f"give {_python_place(found)} an end, or turn its recursion into a loop")
        yield Step(text="do not raise sys.setrecursionlimit(): it is what turns this into a RecursionError")
    else:
        name = short_function(found.function) if found is not None else "the function that calls itself"
        yield Step(text=f"find why {name} does not end: too deeply nested data, or a cycle in it")
        yield Step(text="if a limit was raised with sys.setrecursionlimit(), lower it again")
    yield _larger_stack(evidence, "or give")


def _larger_stack(evidence: Evidence, give: str) -> Step:
    thread = thread_of(evidence)
    if thread == "python":
        text = "its thread a larger stack, before it is started: threading.stack_size(64 << 20)"
        return Step(text=f"{give} {text}")
    if thread == "native":
        text = "its thread a larger stack, where it is created; for threads of OpenMP:"
        return Step(text=f"{give} {text}", command="export OMP_STACKSIZE=64M")
    text = "it a larger stack, in the shell that starts the job:"
    return Step(text=f"{give} {text}", command="ulimit -s 65536")


CAUSE = Cause(
    id="stack-overflow",
    title="A thread used up its stack",
    doc=__doc__,
    needs=("fault", "native_stack", "recursion"),
    prior=-3.0,
    weights={
        "past_the_end": 6.0,
        "near_stack_pointer": 2.8,
        "recurses": 1.5,
        "small_stack": 0.3,
        "could_be": 0.2,
        "limit_raised": 3.5,
        "same_frames": 4.6,
        "its_words": 6.2,
        "jumped_there": -5.0,
        "inside_the_stack": -4.0,
        "far_from_stack": -6.0,
        "sent": -7.0,
        "other_ending": -1.5,
        "other_signal": -8.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=(
        "stack-overflow",
        "stack-overflow-on-thread",
        "stack-overflow-on-c-thread",
        "small-thread-stack",
        "python-recursion",
        "nested-data",
    ),
    near_misses=("wild-pointer", "null-dereference", "stack-smashing"),
)
