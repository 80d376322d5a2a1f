"""What is known about one death: facts, each with where it came from.

`None` means that a fact was not collected; an empty tuple means that it was, and that nothing was there.
Nothing here is an opinion: those live in `lastwords.diagnosis` and point back at these facts.
"""

from __future__ import annotations

import msgspec


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The base of every fact. `source` says who told us, in words a reader can check."""

    source: str


class Process(Fact, frozen=True, kw_only=True):
    pid: int
    parent: int | None = None
    role: str | None = None
    worker: int | None = None
    rank: int | None = None
    host: str | None = None
    command: tuple[str, ...] | None = None
    executable: str | None = None
    runtime: str | None = None
    started: float | None = None
    is_child: bool | None = None
    """Python made it from another process of the job, by fork or spawn."""
    attempt: int | None = None


class Status(Fact, frozen=True, kw_only=True):
    """How the kernel says it ended. `signal` and `exit_code` are never both set."""

    signal: str | None = None
    exit_code: int | None = None
    core_dumped: bool | None = None


class Item(Fact, frozen=True, kw_only=True):
    key: str | None = None
    index: int | None = None
    phase: str | None = None
    seconds: float | None = None


class Fault(Fact, frozen=True, kw_only=True):
    """The signal as the dying thread received it."""

    signal: str
    code: int
    code_name: str | None = None
    address: int | None = None
    sender_pid: int | None = None
    sender_uid: int | None = None
    thread: int | None = None
    thread_name: str | None = None
    is_main_thread: bool | None = None
    architecture: str | None = None
    registers: dict[str, int] = {}
    pc: int | None = None
    sp: int | None = None
    access: str | None = None
    """`read`, `write` or `execute`, where the processor said so."""
    abort_message: str | None = None
    address_in: str | None = None
    """The mapping that the address lies in: a path, `[stack]`, `[heap]`, `anonymous`, or None: no mapping."""
    pc_in: str | None = None
    pc_is_executable: bool | None = None
    canonical: bool | None = None
    """False: no address of this processor looks like this; the kernel then reports address 0."""
    distance_to_sp: int | None = None
    """Address minus stack pointer. A stack that overflowed faults close to it."""
    handled: bool = False
    """Something of the process took the signal and went on after it was recorded."""
    complete: bool = True
    """The recorder wrote all it wanted before the process was gone."""


class MemoryAccess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    text: str
    address: int | None = None
    read: bool = False
    write: bool = False
    size: int | None = None


class Instruction(Fact, frozen=True, kw_only=True):
    address: int
    bytes: str
    text: str
    mnemonic: str
    extensions: tuple[str, ...] = ()
    """Every extension that the CPU must have, named as in /proc/cpuinfo; empty: any x86-64 runs it."""
    memory: tuple[MemoryAccess, ...] = ()
    is_trap: bool = False
    is_valid: bool = True
    matches_file: bool | None = None
    """False: the bytes in memory are not those of the library on disk."""


class NativeFrame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    address: int
    function: str | None = None
    library: str | None = None
    offset: int | None = None
    build_id: str | None = None
    package: str | None = None
    package_version: str | None = None
    file: str | None = None
    line: int | None = None
    inlined: bool = False
    trust: str = "guess"


class NativeStack(Fact, frozen=True, kw_only=True):
    frames: tuple[NativeFrame, ...]
    stopped_because: str | None = None


class PythonFrame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    file: str
    line: int | None
    function: str
    code: str | None = None
    """The line itself, if the file still has it."""


class PythonStack(Fact, frozen=True, kw_only=True):
    """Innermost frame first."""

    frames: tuple[PythonFrame, ...]
    thread: str | None = None
    is_exact: bool = True
    """False: only the function is known, and the line is where it begins."""


class PythonException(Fact, frozen=True, kw_only=True):
    kind: str
    message: str
    frames: tuple[PythonFrame, ...] = ()
    """Innermost frame first."""
    item: Item | None = None
    pid: int | None = None
    worker: int | None = None
    fatal: bool = False
    surfaced: tuple[PythonFrame, ...] = ()
    """Raised in a worker, this is where the dying process saw it again. Innermost frame first."""


class SentSignal(Fact, frozen=True, kw_only=True):
    """Somebody of the job sent this process a signal."""

    signal: str
    sender_pid: int
    sender_role: str | None = None
    time: float | None = None
    where: str | None = None
    """What the sender noted beside it, e.g. its own file and line."""


class Cpu(Fact, frozen=True, kw_only=True):
    architecture: str
    model: str | None = None
    flags: tuple[str, ...] = ()


class Memory(Fact, frozen=True, kw_only=True):
    """Bytes."""

    resident: int | None = None
    peak: int | None = None
    per_item: int | None = None
    """The median change of resident memory over `items` recent items."""
    items: int | None = None


class OomKills(Fact, frozen=True, kw_only=True):
    """How often the kernel has killed in this cgroup for want of memory, before and after the death."""

    before: int
    after: int
    cgroup: str | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that the process did not long before it died."""

    kind: str
    text: str
    seconds_before: float | None = None


class Progress(Fact, frozen=True, kw_only=True):
    begun: int
    done: int


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """Something that would have helped, and how to have it next time."""

    what: str
    how_to_collect: str


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All facts about one death."""

    id: str = ""
    """Given when it is kept; empty before."""
    time: float | None = None
    process: Process | None = None
    status: Status | None = None
    item: Item | None = None
    fault: Fault | None = None
    instruction: Instruction | None = None
    native_stack: NativeStack | None = None
    python_stack: PythonStack | None = None
    other_threads: tuple[PythonStack, ...] | None = None
    exception: PythonException | None = None
    sent_signals: tuple[SentSignal, ...] | None = None
    cpu: Cpu | None = None
    memory: Memory | None = None
    oom_kills: OomKills | None = None
    progress: Progress | None = None
    shut_down: bool | None = None
    """Python came to its own, orderly end: `sys.exit()` passes through that, `os._exit()` does not."""
    events: tuple[Event, ...] | None = None
    missing: tuple[Missing, ...] = ()
    notes: tuple[str, ...] = ()
    """For maintainers: what went wrong while collecting."""
