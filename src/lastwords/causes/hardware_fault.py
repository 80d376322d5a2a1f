"""Hardware is failing.

Memory that flips bits, a GPU that fell off the bus, a PCI Express link with errors, a CPU that is too hot: programs die
in places that make no sense, different ones each time, on one machine and no other. The kernel and the GPU's driver
report some of it (machine checks, EDAC, AER, Xid 48, 63, 64, 74, 79, 94, 95, ECC).

A crash alone does not prove it; a report of the hardware does, and so does the same crash in unrelated programs. An
address that is one high bit from one that the process has is a hint: Mozilla found that a memory test confirmed about
half of the crashes that looked so. An item that crashes in the same way when it is tried again is no bit that flipped. `lastwords explain ID --memtest` is such a test, of a few seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes import alone
from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import bare, field, nothing_said, reason
from lastwords.causes.words import hexadecimal
from lastwords.evidence.model import Evidence


def _tested(evidence: Evidence) -> Iterator[Reason]:
    test = evidence.memory_test
    if test is None or not test.passes or not test.tested:
        return
    size = f"{test.tested >> 20} MiB, {test.passes} times"
    if test.errors:
        example = f", first {test.examples[0]}" if test.examples else ""
        yield Reason(
            "memory_failed",
            f"this machine's memory did not keep what was written ({size}): {test.errors} errors{example}",
        )
    else:
        yield Reason(
            "memory_held", f"a short test of this machine's memory found nothing ({size}); it proves little"
        )


def _one_bit_away(evidence: Evidence) -> Iterator[Reason]:
    fault = evidence.fault
    if fault is not None and fault.flipped_bit is not None and fault.address is not None:
        meant = fault.address ^ 1 << fault.flipped_bit
        yield Reason(
            "one_bit_away",
            f"{hexadecimal(fault.address)} is one bit ({fault.flipped_bit}) from {hexadecimal(meant)}, which is the process's own",
        )


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [
        *reason(evidence, "reported", "hardware-error"),
        *reason(evidence, "hinted", "hardware-hint"),
        *reason(evidence, "io_error", "io-error"),
        *_one_bit_away(evidence),
        *_tested(evidence),
    ]
    if bare(evidence, "SIGSEGV", "SIGBUS", "SIGILL") and not reasons:
        reasons.append(Reason("could_be", "memory that flips bits ends so too, in places that make no sense"))
    yield from nothing_said(reasons)
    if any(one.name == "one_bit_away" for one in reasons):
        yield from alone.passed(evidence, "passed_alone")
        yield from alone.died_again(evidence, "died_alone")


def sentence(evidence: Evidence) -> str:
    if evidence.memory_test is not None and evidence.memory_test.errors:
        return "This machine's memory does not keep what is written into it."
    if evidence.fault is not None and evidence.fault.flipped_bit is not None:
        return "A bit of an address may have flipped in this machine's memory."
    unit = field(evidence, ("hardware-error",), "unit")
    return f"The hardware reported an error of its own{f' ({unit})' if unit else ''}."


def facts(evidence: Evidence) -> Facts:
    kinds = ("hardware-error",)
    return {
        "unit": field(evidence, kinds, "unit"),
        "xid": field(evidence, kinds, "xid"),
        "device": field(evidence, kinds, "device"),
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    if evidence.memory_test is None and evidence.id:
        yield Step(
            text="write and read this machine's free memory for a few seconds:",
            command=f"lastwords explain {evidence.id} --memtest",
        )
    unit = field(evidence, ("hardware-error",), "unit") or ""
    if unit in ("GPU", "NVLink", "PCI Express"):
        yield Step(
            text="see what the driver counted, and take the card out of service:",
            command="nvidia-smi -q -d ECC,PAGE_RETIREMENT,ROW_REMAPPER; sudo dmesg -T | grep -iE 'xid|aer'",
        )
        yield Step(text="test it:", command="dcgmi diag -r 3")
    if unit == "disk":
        yield Step(text="read the disk's own record:", command="sudo smartctl -a /dev/DEVICE")
    yield Step(
        text="see what the kernel counted:",
        command="sudo dmesg -T | grep -iE 'hardware error|edac|mce'; sudo ras-mc-ctl --errors",
    )
    yield Step(
        text="run the same job on another machine; memory: set it to its rated speed (no XMP, EXPO), then memtest86+"
    )
    yield Step(
        text="Slurm: `scontrol update nodename=NODE state=drain reason=hardware`; Kubernetes: `kubectl cordon NODE`"
    )


CAUSE = Cause(
    id="hardware-fault",
    title="Hardware is failing",
    doc=__doc__,
    needs=("mentions", "status", "fault", "memory_test"),
    prior=-3.0,
    weights={
        "reported": 6.1,
        "hinted": 2.0,
        "io_error": 2.4,
        "could_be": 0.2,
        "one_bit_away": 2.2,
        "memory_failed": 6.0,
        "memory_held": -0.6,
        "passed_alone": 0.6,
        "died_alone": -2.5,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("bit-flip", "text:hardware-fault"),
    near_misses=("text:cuda-illegal-access", "wild-pointer"),
)
