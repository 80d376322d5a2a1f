"""The program stopped itself with a trap instruction.

Compilers and libraries put `ud2` or `int3` where the program must never arrive: after a failed check of a
sanitizer, in `__builtin_trap()`, behind a function that must not return, in Rust's `abort`. The CPU then
refuses it as it would refuse a foreign instruction, but this one was put there on purpose: the code found its
own state impossible. It says nothing about the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import bare, reason
from lastwords.causes.words import native_steps, not_this_signal, place, place_first, sent_by, source_line
from lastwords.evidence.frames import blamed, faulting
from lastwords.evidence.model import Evidence


def judge(evidence: Evidence) -> Iterator[Reason]:
    against = [*not_this_signal(evidence, "SIGILL", "SIGTRAP"), *sent_by(evidence)]
    yield from against
    fault, found = evidence.fault, evidence.instruction
    if any(reason.name == "other_signal" for reason in against):
        return
    if fault is not None and fault.signal == "SIGTRAP" and fault.code > 0:
        # The program counter stands behind a breakpoint by then: the instruction there says nothing.
        yield Reason("breakpoint", "SIGTRAP comes from a breakpoint, and no debugger was there to take it")
    elif bare(evidence, "SIGTRAP"):
        yield Reason("sigtrap", "SIGTRAP comes from an instruction that is there to stop the program")
    elif found is None:
        yield from reason(evidence, "trap_shown", "trap-here")
    elif found.is_trap:
        yield Reason("is_trap", f"{found.text} is there to stop the program, on every CPU")
    else:
        yield Reason("is_no_trap", f"{found.text or found.bytes} is not a trap instruction")


def sentence(evidence: Evidence) -> str:
    if evidence.fault is not None and evidence.fault.signal == "SIGTRAP":
        return f"{place_first(evidence)} ran into a breakpoint, and there is no debugger."
    return f"{place_first(evidence)} stopped the program on purpose: a check failed."


def facts(evidence: Evidence) -> Facts:
    frame = faulting(evidence)
    return {
        "instruction": _trap(evidence),
        "function": frame.function if frame else None,
        "library": frame.library if frame else None,
    }


def _trap(evidence: Evidence) -> str | None:
    fault, found = evidence.fault, evidence.instruction
    if fault is not None and fault.signal == "SIGTRAP" and fault.architecture == "x86_64":
        return "int3"
    return found.text if found else None


def remedy(evidence: Evidence) -> Iterator[Step]:
    frame = blamed(evidence)
    if frame is not None and frame.file and frame.line:
        yield Step(text=f"read the check at {source_line(frame)}: what it forbids has happened")
    else:
        yield Step(text=f"read what {place(evidence)} checks: what it forbids has happened")
    yield from native_steps(evidence)


CAUSE = Cause(
    id="trap-instruction",
    title="The program stopped itself with a trap instruction",
    doc=__doc__,
    needs=("fault", "instruction"),
    prior=-3.0,
    weights={
        "is_trap": 6.5,
        "breakpoint": 6.5,
        "sigtrap": 4.0,
        "trap_shown": 6.0,
        "is_no_trap": -6.0,
        "sent": -6.0,
        "other_ending": -1.5,
        "other_signal": -8.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("trap-instruction", "breakpoint"),
    near_misses=("illegal-instruction", "invalid-opcode"),
)
