"""Control flow left the program's code.

The processor was sent to a place where no code is: to data that may not be run, to an address where nothing is
mapped, to bytes that are no instruction of any CPU, or to an instruction that only the kernel may run. Nobody
writes such a jump; it comes from a function pointer or a return address that was overwritten. So this is damaged
memory, even where it ends as SIGILL: another CPU would not help.

A call through a null pointer, and one through an object that was freed, are told apart and have their own names.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes import use_after_free
from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.words import (
    file_name,
    hexadecimal,
    memory_checks,
    native_steps,
    not_this_signal,
    place,
    place_facts,
    place_first,
    sent_by,
    source_line,
    stack_checks,
)
from lastwords.evidence.frames import blamed, left_code
from lastwords.evidence.model import Evidence, Fault, Instruction
from lastwords.evidence.pointers import words

BRANCHES = ("ret", "call", "jmp")
PRINTABLE = range(0x20, 0x7F)


def judge(evidence: Evidence) -> Iterator[Reason]:
    against = [*not_this_signal(evidence, "SIGSEGV", "SIGILL", "SIGBUS"), *sent_by(evidence)]
    yield from against
    fault, found = evidence.fault, evidence.instruction
    if fault is None or any(reason.name == "other_signal" for reason in against):
        return
    if left_code(fault):
        yield from _judge_target(evidence, fault)
    elif fault.signal == "SIGILL":
        yield from _judge_illegal(fault, found)
    elif found is not None:
        yield from _judge_branch(evidence, fault, found)


def _judge_target(evidence: Evidence, fault: Fault) -> Iterator[Reason]:
    target = hexadecimal(fault.pc)
    if not fault.pc:
        yield Reason("null", "the pointer that was called is null")
    elif fault.pc_in is not None:
        yield Reason("into_data", f"it jumped to {target}, which is data of {_mapping(fault)} and no code")
    else:
        yield Reason("into_nothing", f"it jumped to {target}, where nothing is mapped")
    if use_after_free.is_of_freed_memory(evidence):
        yield Reason("freed_memory", "the address came out of freed memory")


def _mapping(fault: Fault) -> str:
    return "no file" if fault.pc_in in (None, "anonymous") else file_name(fault.pc_in)


def _judge_illegal(fault: Fault, found: Instruction | None) -> Iterator[Reason]:
    if fault.pc_is_executable is False:
        yield Reason("into_data", f"the program counter is in {_mapping(fault)}, which is no code")
    if found is None:
        return
    if not found.is_valid:
        yield Reason("no_instruction", f"the bytes {_start(found.bytes)} are no instruction of any CPU")
    elif found.is_privileged:
        yield Reason(
            "privileged", f"{found.text} is for the kernel alone: no compiler puts it into a program"
        )
    else:
        yield Reason("is_instruction", f"{found.text} is an instruction")
    if found.matches_file is False:
        yield Reason("code_differs", "the code in memory is not the code in the file")


def _judge_branch(evidence: Evidence, fault: Fault, found: Instruction) -> Iterator[Reason]:
    """A jump to an address that cannot exist faults before it is taken."""
    is_branch = found.mnemonic.startswith(BRANCHES)
    is_own_fault = fault.code_name == "SI_KERNEL" and fault.canonical is not False
    if is_branch and is_own_fault:
        target = target_of(evidence)
        where = f" to {hexadecimal(target)}{_as_text(target)}" if target is not None else ""
        verb = "return" if found.mnemonic.startswith("ret") else "jump"
        yield Reason("impossible_target", f"{found.text}  would {verb}{where}, an address that cannot exist")
    elif found.is_privileged and is_own_fault:
        yield Reason(
            "privileged", f"{found.text} is for the kernel alone: no compiler puts it into a program"
        )
    else:
        yield Reason(
            "is_instruction", f"{found.text} is an instruction, in code, and it is no jump that failed"
        )


def target_of(evidence: Evidence) -> int | None:
    """Where it went, or would have gone: for a return, what stands on top of the stack."""
    fault, found = evidence.fault, evidence.instruction
    if fault is None or left_code(fault):
        return fault.pc if fault else None
    if found is None or not found.mnemonic.startswith("ret"):
        return None
    top = next((one for one in evidence.pointers or () if one.value == fault.sp), None)
    content = words(top.bytes) if top else ()
    return content[0] if content else None


def _as_text(number: int | None) -> str:
    """Text that was taken for an address, as after a copy that went too far."""
    letters = number.to_bytes(8, "little") if number is not None else b""
    if letters and all(letter in PRINTABLE for letter in letters):
        return f" (the text {letters.decode('ascii')!r})"
    return ""


def _start(content: str) -> str:
    return content[:16]


def sentence(evidence: Evidence) -> str:
    found = evidence.instruction
    if left_code(evidence.fault):
        return f"{place_first(evidence)} jumped to where no code is: a function pointer was overwritten."
    if found is not None and found.mnemonic.startswith("ret"):
        return f"{place_first(evidence)} returned to where no code is: its return address was overwritten."
    return f"Control flow arrived at bytes that are no code, in {place(evidence)}."


def facts(evidence: Evidence) -> Facts:
    fault, found = evidence.fault, evidence.instruction
    return {
        "target": hexadecimal(target_of(evidence)),
        "access": fault.access if fault else None,
        "mapping": fault.pc_in if fault else None,
        "instruction": found.text if found and found.is_valid else None,
        "bytes": _start(found.bytes) if found else None,
        **place_facts(evidence),
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    frame, found = blamed(evidence), evidence.instruction
    if found is not None and found.mnemonic.startswith("ret"):
        yield Step(text=f"look at the arrays on the stack of {place(evidence)}: one was written past its end")
    elif frame is not None and frame.file and frame.line:
        yield Step(text=f"look at {source_line(frame)}: who sets the function pointer that it calls?")
    else:
        yield Step(text="with ctypes or cffi, check the callback's type and keep a reference to it")
    is_return = found is not None and found.mnemonic.startswith("ret")
    yield from stack_checks(evidence) if is_return else memory_checks(evidence)
    yield from native_steps(evidence)


CAUSE = Cause(
    id="corrupted-control-flow",
    title="Control flow left the program's code",
    doc=__doc__,
    needs=("fault", "instruction", "native_stack"),
    prior=-3.0,
    weights={
        "into_data": 5.5,
        "into_nothing": 5.0,
        "no_instruction": 5.0,
        "impossible_target": 6.0,
        "privileged": 4.5,
        "code_differs": 0.3,
        "null": -6.0,
        "freed_memory": -4.5,
        "is_instruction": -5.0,
        "sent": -7.0,
        "other_ending": -1.5,
        "other_signal": -8.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("jump-into-data", "overwritten-return-address", "invalid-opcode"),
    near_misses=("jump-to-null", "use-after-free", "illegal-instruction", "trap-instruction"),
)
