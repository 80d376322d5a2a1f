"""Native code wrote to memory that may only be read.

The address is mapped, and the mapping has no right to write: a constant or a text in a library, a file that was
mapped for reading, an array that was handed out read-only. The kernel says SEGV_ACCERR, and the processor that
it was a write. A write to a guard page is no such thing: nobody may read there either.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import bare, reason
from lastwords.causes.words import (
    access_of,
    file_name,
    hexadecimal,
    native_steps,
    not_this_signal,
    place_facts,
    place_first,
    sent_by,
    source_line,
)
from lastwords.evidence.frames import blamed, overflows
from lastwords.evidence.model import Evidence, Fault


def judge(evidence: Evidence) -> Iterator[Reason]:
    against = [*not_this_signal(evidence, "SIGSEGV"), *sent_by(evidence)]
    yield from against
    fault = evidence.fault
    if bare(evidence, "SIGSEGV"):
        yield from reason(evidence, "not_writable", "not-writable")
    if fault is None or any(one.name == "other_signal" for one in against):
        return
    if fault.code_name == "SEGV_ACCERR":
        yield Reason("refused", f"{hexadecimal(fault.address)} is mapped, and access was refused")
        yield from _judge_access(evidence, fault)
    elif fault.code_name is not None:
        yield Reason("not_refused", "no access to mapped memory was refused")


def _judge_access(evidence: Evidence, fault: Fault) -> Iterator[Reason]:
    access, rights = access_of(evidence), fault.address_permissions
    if access == "write":
        yield Reason("was_write", "it was a write")
    elif access is not None:
        yield Reason("no_write", f"it was no write: it wanted to {access}")
    if rights is not None and "r" in rights and "w" not in rights:
        yield Reason("readonly", f"{_where(fault)} may be read and not written ({rights})")
    elif rights is not None:
        yield Reason("not_readonly", f"{_where(fault)} is not read-only memory ({rights})")
    if overflows(fault):
        yield Reason("past_the_stack", "the address is past the end of its stack")


def _where(fault: Fault) -> str:
    if fault.address_in in (None, "anonymous"):
        return "memory of no file"
    return file_name(fault.address_in)


def sentence(evidence: Evidence) -> str:
    fault = evidence.fault
    where = f"read-only memory of {_where(fault)}" if fault and fault.address_in else "read-only memory"
    return f"{place_first(evidence)} wrote to {where}."


def facts(evidence: Evidence) -> Facts:
    fault = evidence.fault
    return {
        "address": hexadecimal(fault.address) if fault else None,
        "access": access_of(evidence),
        "mapping": fault.address_in if fault else None,
        "permissions": fault.address_permissions if fault else None,
        **place_facts(evidence),
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    frame = blamed(evidence)
    if frame is not None and frame.file and frame.line:
        yield Step(text=f"look at {source_line(frame)}: it writes to a constant")
    yield Step(
        text="if it is an array of yours, hand over a copy that may be written: array.copy(),"
        " np.memmap(…, mode='c'), tensor.clone()"
    )
    yield from native_steps(evidence)


CAUSE = Cause(
    id="write-to-readonly",
    title="Native code wrote to memory that may only be read",
    doc=__doc__,
    needs=("fault", "native_stack"),
    prior=-3.0,
    weights={
        "refused": 1.5,
        "was_write": 2.0,
        "not_writable": 3.7,
        "readonly": 3.5,
        "not_refused": -6.0,
        "no_write": -6.0,
        "not_readonly": -5.0,
        "past_the_stack": -6.0,
        "sent": -7.0,
        "other_ending": -1.5,
        "other_signal": -8.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("write-to-readonly",),
    near_misses=("jump-into-data", "stack-overflow-on-c-thread", "wild-pointer"),
)
