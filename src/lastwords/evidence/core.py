"""A core file as evidence: what the kernel kept of a process that no recorder watched.

It has every thread's registers and stack, and no item, no Python frames and no word about the machine.
"""

from __future__ import annotations

import os

import msgspec

from lastwords import _native
from lastwords.evidence import box as raw
from lastwords.evidence import copies, cpu, fault, recursion, signals
from lastwords.evidence.missing import RUN, missing
from lastwords.evidence.model import Evidence, Fault, Missing, Process, Status

SOURCE = "core file"


class UnreadableCore(ValueError):
    """The file cannot be opened, or is not a core. `reason` is for the user."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class Thread(msgspec.Struct, frozen=True):
    tid: int | None = None
    autopsy: raw.Autopsy = raw.Autopsy()
    registers: dict[str, int] = {}


class Core(msgspec.Struct, frozen=True):
    architecture: str | None = None
    pid: int | None = None
    parent_pid: int | None = None
    command: str | None = None
    executable: str | None = None
    signal: int | None = None
    signal_code: int | None = None
    sender_pid: int | None = None
    fault_address: int | None = None
    threads: tuple[Thread, ...] = ()
    truncated: bool = False
    notes: tuple[str, ...] = ()


def is_core(path: str | os.PathLike[str]) -> bool:
    """By its head alone: an ELF file of the type that only cores have."""
    try:
        with open(path, "rb") as file:
            head = file.read(18)
    except OSError:
        return False
    return head[:4] == b"\x7fELF" and head[16:18] in (b"\x04\x00", b"\x00\x04")


def from_core(path: str | os.PathLike[str]) -> Evidence:
    """Raises UnreadableCore if `path` is not a core file."""
    core = read(path)
    crashed = core.threads[0] if core.threads else Thread()
    signal = signals.name_of(core.signal) if core.signal else None
    met = _fault(core, crashed) if signal else None
    native = fault.native_stack(crashed.autopsy)
    evidence = Evidence(
        time=_written(path),
        process=_process(core),
        status=Status(source=SOURCE, signal=signal, core_dumped=True) if signal else None,
        fault=met,
        instruction=fault.instruction(crashed.autopsy),
        native_stack=native,
        recursion=recursion.recursion(met, native, None, lambda _: None) if met else None,
        copies=copies.copies(crashed.autopsy.libraries),
        # A core may come from another host; its own notes do not name the CPU.
        cpu=cpu.this_host(),
        notes=(*core.notes, *crashed.autopsy.notes),
    )
    return msgspec.structs.replace(evidence, missing=(*_not_in_a_core(core), *missing(evidence)))


_CORE = msgspec.json.Decoder(Core)


def read(path: str | os.PathLike[str]) -> Core:
    name = os.fspath(path)
    try:
        return _CORE.decode(_native.autopsy_core(name))
    except (OSError, ValueError) as error:
        raise UnreadableCore(name, str(error)) from error


def _written(path: str | os.PathLike[str]) -> float | None:
    """The kernel writes the core while the process dies: its time is the time of the death."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def _process(core: Core) -> Process | None:
    if not core.pid:
        return None
    return Process(
        source=SOURCE,
        pid=core.pid,
        parent=core.parent_pid,
        command=tuple(core.command.split()) if core.command else None,
        executable=core.executable,
    )


def _fault(core: Core, crashed: Thread) -> Fault:
    crash = raw.Crash(
        state="complete",
        signal=core.signal or 0,
        code=core.signal_code or 0,
        address=core.fault_address,
        sender_pid=core.sender_pid,
        tid=crashed.tid,
        architecture=core.architecture,
        registers=crashed.registers,
    )
    return msgspec.structs.replace(fault.fault(crash, core.pid, crashed.autopsy), source=SOURCE)


def _not_in_a_core(core: Core) -> list[Missing]:
    lacking = [Missing(what="the item and the Python line (a core has neither)", how_to_collect=RUN)]
    if core.truncated:
        lacking.append(
            Missing(what="the rest of the core file: it was cut short", how_to_collect="ulimit -c unlimited")
        )
    return lacking
