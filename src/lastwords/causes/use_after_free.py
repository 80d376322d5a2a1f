"""Native code used memory that had been given back.

An object was freed, and a pointer to it lived on. What is found there then is no longer the object: glibc keeps
its lists of free blocks in them, and debugging allocators fill them with one byte. Code that takes these for a
pointer of its own faults at an address that gives it away: the address is what glibc would have written into a
block at that very place, or it consists of 0xdd or another such byte.

A freed block that a register merely points at is no proof, since every call of free() leaves one. It counts
only where the bad address itself came out of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes import alone
from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import quoted, said
from lastwords.causes.words import (
    hexadecimal,
    memory_checks,
    native_steps,
    not_this_signal,
    place_facts,
    place_first,
    sent_by,
)
from lastwords.evidence.frames import left_code
from lastwords.evidence.model import Evidence, Pointer
from lastwords.evidence.pointers import FILLINGS, FREED, filling, words

FARTHEST = 64 << 10
"""From the start of a freed object to the field that was used."""
SMALLEST_ADDRESS = 1 << 20
_KINDS = {
    "cache": "on malloc's list of free blocks",
    "bin": "on malloc's list of large free blocks",
    "filled": "filled as freed",
}


def bad_address(evidence: Evidence) -> int | None:
    """What was taken for an address and is none: of the fault, or of the jump."""
    fault = evidence.fault
    if fault is None:
        return None
    return fault.pc if left_code(fault) else fault.address


def poison(evidence: Evidence) -> int | None:
    """The byte that the bad address consists of, where an allocator fills freed memory with it."""
    address = bad_address(evidence)
    found = filling(address) if address is not None else None
    return found if found in FREED else None


def source_of(evidence: Evidence) -> Pointer | None:
    """The freed block that the bad address was read from."""
    address = bad_address(evidence)
    if address is None or address < SMALLEST_ADDRESS:
        return None
    for one in evidence.pointers or ():
        if one.freed and any(0 <= address - word < FARTHEST for word in words(one.bytes) if word):
            return one
    return None


def is_mark_of_a_block(evidence: Evidence) -> bool:
    """The mark that glibc gives to the last block of a list is its own address without the last three digits."""
    address, fault = bad_address(evidence), evidence.fault
    if address is None or fault is None or address < SMALLEST_ADDRESS:
        return False
    return any(value >> 12 == address for value in fault.registers.values())


def is_of_freed_memory(evidence: Evidence) -> bool:
    return poison(evidence) is not None or source_of(evidence) is not None or is_mark_of_a_block(evidence)


def _reported(evidence: Evidence) -> Iterator[Reason]:
    """AddressSanitizer saw the access itself."""
    for one in said(evidence, "sanitizer"):
        if "use-after" in one.fields.get("bug", ""):
            yield quoted("sanitizer_said", one)
            return


def judge(evidence: Evidence) -> Iterator[Reason]:
    reported = list(_reported(evidence))
    if reported:
        yield from reported
        return
    against = [*not_this_signal(evidence, "SIGSEGV", "SIGBUS"), *sent_by(evidence)]
    yield from against
    if evidence.fault is None or any(reason.name == "other_signal" for reason in against):
        return
    byte, block, address = poison(evidence), source_of(evidence), hexadecimal(bad_address(evidence))
    if byte is not None:
        yield Reason("filled", f"the address {address} consists of {byte:#x}: {FILLINGS[byte]}")
    if block is not None:
        yield Reason(
            "from_freed_block",
            f"{address} was read from {block.value:#x} ({block.register}), a block {_KINDS[block.freed or '']}",
        )
    elif is_mark_of_a_block(evidence):
        yield Reason("mark_of_a_block", f"{address} is what malloc writes into a block when it is freed")
    if byte is None and block is None and evidence.pointers is not None:
        yield Reason("no_sign", "the address is not one that freed memory would give")
    yield from alone.passed_without(evidence, "passed_alone")


def sentence(evidence: Evidence) -> str:
    verb = "called a function of" if left_code(evidence.fault) else "used"
    return f"{place_first(evidence)} {verb} an object that had been freed."


def facts(evidence: Evidence) -> Facts:
    block, byte = source_of(evidence), poison(evidence)
    return {
        "address": hexadecimal(bad_address(evidence)),
        "block": hexadecimal(block.value) if block else None,
        "register": block.register if block else None,
        "pattern": hexadecimal(byte),
        **place_facts(evidence),
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    yield Step(
        text="find who frees the object while it is still used: often a Python object that owned it was dropped;"
        " keep a reference to it as long as native code has its address"
    )
    yield from memory_checks(evidence)
    yield from native_steps(evidence)


CAUSE = Cause(
    id="use-after-free",
    title="Native code used memory that had been given back",
    doc=__doc__,
    needs=("fault", "pointers", "native_stack"),
    prior=-3.0,
    weights={
        "sanitizer_said": 6.0,
        "filled": 6.0,
        "from_freed_block": 5.5,
        "mark_of_a_block": 4.5,
        "passed_alone": 0.5,
        "no_sign": -2.0,
        "sent": -7.0,
        "other_ending": -1.5,
        "other_signal": -8.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("use-after-free", "use-after-free-large", "use-after-free-poisoned"),
    near_misses=("wild-pointer", "impossible-address", "null-dereference", "jump-into-data"),
)
