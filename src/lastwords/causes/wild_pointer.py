"""Native code used a pointer that points nowhere.

The address is not near null, and nothing is mapped there: a pointer that was never set, was overwritten, was
kept after its memory was given back to the system, or was computed from a wrong index. An address that no CPU
can have (its upper bits are not all alike) nearly always is data that was taken for a pointer.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes import alone, heap_corruption, use_after_free
from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.words import (
    NULL_PAGES,
    hexadecimal,
    native_steps,
    not_this_signal,
    place_facts,
    place_first,
    sent_by,
    source_line,
)
from lastwords.evidence.frames import NEAR_STACK, blamed, left_code
from lastwords.evidence.model import Evidence, Fault


def judge(evidence: Evidence) -> Iterator[Reason]:
    against = [*not_this_signal(evidence, "SIGSEGV"), *sent_by(evidence)]
    yield from against
    fault = evidence.fault
    if fault is not None and not any(reason.name == "other_signal" for reason in against):
        yield from _judge_fault(evidence, fault)
        if use_after_free.is_of_freed_memory(evidence):
            yield Reason("freed_memory", "the address came out of freed memory")
        if inside := heap_corruption.in_allocator(evidence):
            yield Reason("in_allocator", f"the pointer is one of {inside}'s own, which was overwritten")


def _judge_fault(evidence: Evidence, fault: Fault) -> Iterator[Reason]:
    if fault.canonical is False:
        yield Reason(
            "impossible_address", f"the address {hexadecimal(fault.address)} cannot exist on this CPU"
        )
        return
    if fault.code_name == "SI_KERNEL":
        yield from _judge_without_address(evidence)
        return
    if fault.address is None:
        return
    if fault.address < NULL_PAGES:
        yield Reason("near_null", f"the address {fault.address:#x} is null plus an offset")
    elif fault.code_name == "SEGV_MAPERR":
        yield Reason(
            "unmapped", f"nothing is mapped at {fault.address:#x}, which it tried to {fault.access or 'use'}"
        )
        yield from alone.died_again(evidence, "died_alone")
        yield from _judge_neighbourhood(fault)
    else:
        yield Reason(
            "mapped", f"{fault.address:#x} is mapped ({fault.address_in or 'somewhere'}); access was refused"
        )


def _judge_without_address(evidence: Evidence) -> Iterator[Reason]:
    """The kernel gives none where the address cannot exist, but also for other things that a CPU refuses."""
    found = evidence.instruction
    if found is not None and all(one.address is not None for one in found.memory):
        # Had one of them been impossible, the autopsy would have said so.
        yield Reason("addresses_exist", f"every address that {found.text} uses can exist")
    else:
        yield Reason(
            "no_address_given", "the kernel gave no address, as it does when the address cannot exist"
        )


def _judge_neighbourhood(fault: Fault) -> Iterator[Reason]:
    if fault.distance_to_sp is not None and abs(fault.distance_to_sp) < NEAR_STACK:
        yield Reason(
            "near_stack_pointer", "the address is next to the stack pointer, as when a stack overflows"
        )
    if left_code(fault):
        yield Reason("jumped_there", "it jumped there: control flow left the code")


def sentence(evidence: Evidence) -> str:
    return f"{place_first(evidence)} used a pointer that points nowhere."


def facts(evidence: Evidence) -> Facts:
    fault = evidence.fault
    return {
        "address": hexadecimal(fault.address) if fault else None,
        "access": fault.access if fault else None,
        **place_facts(evidence),
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    frame = blamed(evidence)
    if frame is not None and frame.file and frame.line:
        yield Step(text=f"look at {source_line(frame)}: where does the pointer used there come from?")
    yield Step(text="check indices and sizes passed into native code: one out of range makes such a pointer")
    yield from native_steps(evidence)


CAUSE = Cause(
    id="wild-pointer",
    title="Native code used a pointer that points nowhere",
    doc=__doc__,
    needs=("fault", "native_stack"),
    prior=-3.0,
    weights={
        "unmapped": 4.0,
        "impossible_address": 4.7,
        "no_address_given": 3.6,
        "died_alone": 0.4,
        "addresses_exist": -4.0,
        "freed_memory": -5.0,
        "in_allocator": -4.0,
        "near_null": -5.0,
        "near_stack_pointer": -4.0,
        "jumped_there": -3.0,
        "mapped": -4.0,
        "sent": -7.0,
        "other_ending": -1.5,
        "other_signal": -8.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("wild-pointer", "bit-flip", "impossible-address"),
    near_misses=("null-dereference", "use-after-free", "overwritten-return-address", "misaligned-vector"),
)
