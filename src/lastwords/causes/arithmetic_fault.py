"""An integer division had no result.

The signal is called SIGFPE, "floating-point exception", and on Linux it nearly never is one: floating-point
arithmetic gives inf and nan, and goes on. What faults is the division of whole numbers: by zero, or the one
quotient that does not fit, the smallest number by -1. Python and numpy check for both; C, C++ and Cython code
(with `cdivision=True`) does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.causes.cause import SIGNAL_FITS, Cause, Facts, Reason, Step
from lastwords.causes.words import (
    native_steps,
    not_this_signal,
    place_facts,
    place_first,
    sent_by,
    source_line,
)
from lastwords.evidence.frames import blamed
from lastwords.evidence.model import Evidence, Instruction

_DIVISIONS = ("div", "idiv")
# Functions of the C library that never divide whole numbers.
_REAL = re.compile(
    r"(__)?(log(10|2|1p)?|exp(2|m1)?|pow|sqrt|sinh?|cosh?|tanh?|atan2?|fmod|hypot)(f|l|_\w+)?$"
)
_WIDTHS = {"byte": 1, "word": 2, "dword": 4, "qword": 8}
_WIDE = {"a": "rax", "b": "rbx", "c": "rcx", "d": "rdx"}
_LEGACY = re.compile(r"[er]?([abcd])[xl]|[er]?(si|di|bp)l?")
_NUMBERED = re.compile(r"(r\d{1,2})[dwb]?")


def judge(evidence: Evidence) -> Iterator[Reason]:
    against = [*not_this_signal(evidence, "SIGFPE"), *sent_by(evidence)]
    yield from against
    if any(reason.name == "other_signal" for reason in against):
        return
    yield Reason(SIGNAL_FITS, "arithmetic that has no result (SIGFPE)")
    fault, found = evidence.fault, evidence.instruction
    if fault is not None and fault.code_name in ("FPE_INTDIV", "FPE_INTOVF"):
        yield Reason("integer", f"the kernel calls it {fault.code_name}: whole numbers, not floating point")
    elif fault is not None and fault.code_name and fault.code_name.startswith("FPE_FLT"):
        yield Reason("floating", f"the kernel calls it {fault.code_name}: the program asked for such traps")
    if found is not None and found.mnemonic in _DIVISIONS:
        yield Reason("division", f"{found.text}{_by(evidence)}")


def _by(evidence: Evidence) -> str:
    number = divisor(evidence)
    return "  is a division of whole numbers" if number is None else f"  divides by {number}"


def divisor(evidence: Evidence) -> int | None:
    """What it divided by: from the register, or from the memory that was saved behind one."""
    found = evidence.instruction
    if found is None or found.mnemonic not in _DIVISIONS:
        return None
    return _from_memory(evidence, found) if found.memory else _from_register(evidence, found)


def _from_register(evidence: Evidence, found: Instruction) -> int | None:
    name = found.text.split()[-1].lower()
    legacy, numbered = _LEGACY.fullmatch(name), _NUMBERED.fullmatch(name)
    wide = numbered[1] if numbered else None
    if legacy:
        wide = _WIDE[legacy[1]] if legacy[1] else f"r{legacy[2]}"
    value = evidence.fault.registers.get(wide) if evidence.fault and wide else None
    return _signed(value.to_bytes(8, "little"), _register_width(name)) if value is not None else None


def _register_width(name: str) -> int:
    if name.endswith(("l", "b")) and not name.endswith("bl"):
        return 1
    if name.startswith("e") or name.endswith("d"):
        return 4
    return 8 if name.startswith("r") and not name.endswith("w") else 2


def _from_memory(evidence: Evidence, found: Instruction) -> int | None:
    """Of each register 32 bytes are known."""
    operand = found.memory[0]
    width = operand.size or next((size for word, size in _WIDTHS.items() if f"{word} ptr" in found.text), 0)
    for one in evidence.pointers or ():
        start = (operand.address or 0) - one.value
        content = bytes.fromhex(one.bytes)
        if width and 0 <= start <= len(content) - width:
            return _signed(content[start:], width)
    return None


def _signed(content: bytes, width: int) -> int:
    return int.from_bytes(content[:width], "little", signed=True)


def kind_of(evidence: Evidence) -> str:
    fault, number = evidence.fault, divisor(evidence)
    if fault is not None and fault.code_name and fault.code_name.startswith("FPE_FLT"):
        return "floating-point"
    if fault is None and any(
        map(_REAL.match, (one.fields.get("function", "") for one in evidence.mentions or ()))
    ):
        return "floating-point"
    if number is None:
        return "division"
    return "division-by-zero" if number == 0 else "overflow"


def sentence(evidence: Evidence) -> str:
    match kind_of(evidence):
        case "floating-point":
            return f"{place_first(evidence)} met a floating-point trap that the program had switched on."
        case "division-by-zero":
            return f"{place_first(evidence)} divided a whole number by zero; no floating point is involved."
        case "overflow":
            return f"{place_first(evidence)} divided the smallest whole number by -1; no integer holds the result."
    return f"{place_first(evidence)} divided whole numbers, and there was no result (not floating point)."


def facts(evidence: Evidence) -> Facts:
    return {
        "kind": kind_of(evidence),
        "instruction": evidence.instruction.text if evidence.instruction else None,
        "divisor": divisor(evidence),
        **place_facts(evidence),
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    frame = blamed(evidence)
    where = source_line(frame) if frame is not None and frame.file and frame.line else None
    if kind_of(evidence) == "floating-point":
        yield Step(text="find who calls feenableexcept(), or leave it out: the result is then inf or nan")
    else:
        yield Step(
            text=f"check the divisor before the division{f' at {where}' if where else ''}: it comes from the data"
        )
        yield Step(text="in Cython, leave cdivision off: Python's ZeroDivisionError then comes with the line")
    yield from native_steps(evidence)


CAUSE = Cause(
    id="arithmetic-fault",
    title="An integer division had no result",
    doc=__doc__,
    needs=("fault", "instruction"),
    prior=-3.0,
    weights={
        SIGNAL_FITS: 4.3,
        "integer": 1.5,
        "division": 1.5,
        "floating": 0.5,
        "sent": -7.0,
        "other_ending": -1.5,
        "other_signal": -8.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("integer-division", "division-overflow"),
    near_misses=("trap-instruction", "abort"),
)
