"""Facts that cannot all be true. They are shown as they are; none is averaged away."""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.evidence.model import Evidence, Fault, Instruction


def contradictions(evidence: Evidence) -> Iterator[str]:
    if evidence.fault is not None:
        yield from _signals(evidence, evidence.fault)
    if evidence.fault is not None and evidence.instruction is not None:
        yield from _illegal(evidence, evidence.fault, evidence.instruction)
        yield from _code(evidence.instruction)
    yield from _endings(evidence)


def _signals(evidence: Evidence, fault: Fault) -> Iterator[str]:
    status = evidence.status
    if status is None or status.signal == fault.signal:
        return
    end = status.signal or f"exit code {status.exit_code}"
    after = ", after its own code had handled the first" if fault.handled else ""
    yield f"the crash handler recorded {fault.signal}, yet the process ended with {end}{after}"


def _illegal(evidence: Evidence, fault: Fault, found: Instruction) -> Iterator[str]:
    if fault.signal != "SIGILL" or fault.code <= 0 or not found.is_valid or found.is_trap:
        return
    if not found.extensions:
        yield f"the CPU refused {found.text}, yet every CPU of this kind runs it"
    elif evidence.cpu is not None and all(name in evidence.cpu.flags for name in found.extensions):
        yield (
            f"the CPU refused {found.text}, yet this CPU has {' '.join(found.extensions)}"
            " (an emulator, a feature the system did not enable, or failing hardware)"
        )


def _code(found: Instruction) -> Iterator[str]:
    if found.matches_file is False:
        yield "the code in memory is not the code in the file: it was patched, replaced on disk, or damaged"


def _endings(evidence: Evidence) -> Iterator[str]:
    status, found = evidence.status, evidence.exception
    if status is not None and status.exit_code == 0 and found is not None and found.fatal:
        yield f"nothing caught {found.kind}, yet the process ended with exit code 0"
