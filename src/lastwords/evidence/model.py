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
    flipped_bit: int | None = None
    """The one bit of the address that would have to be another for it to lie in memory that the process has."""
    distance_to_sp: int | None = None
    """Address minus stack pointer. A stack that overflowed faults close to it."""
    handled: bool = False
    """Something of the process took the signal and went on after it was recorded."""
    complete: bool = True
    """The recorder wrote all it wanted before the process was gone."""
    exception_type: str | None = None
    """The C++ exception that was under way, as C++ spells it."""
    exception_what: str | None = None
    asked_of_new: int | None = None
    """Bytes that C++ asked for when `operator new` threw; None: its frame does not show it."""
    fatal_text: str | None = None
    """What Python was told to print behind `Fatal Python error:`, where the caller passed a constant."""
    address_permissions: str | None = None
    """Of the mapping that the address lies in: `r--p`."""
    stack_low: int | None = None
    """Where the stack of this thread ends, and where it begins: it grows downwards."""
    stack_high: int | None = None
    address_offset: int | None = None
    """Where in the mapped file the address lies."""
    file_size: int | None = None
    """Of that file, when the evidence was collected."""


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
    is_privileged: bool = False
    """Only the kernel may run it."""


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
    gap_before: int | None = None
    """Frames are left out of the middle; this is the first one after the gap."""
    omitted: int | None = None
    """How many; None: nobody knows."""


class Recursion(Fact, frozen=True, kw_only=True):
    """Functions that call each other over and over."""

    functions: tuple[str, ...]
    """One round, innermost first."""
    function: str
    """The one of them to name."""
    library: str | None = None
    seen: int
    """Rounds in the part of the stack that was saved."""
    depth: int | None = None
    """Rounds on the whole stack, reckoned from the size of one."""
    bytes_each: int | None = None
    python: PythonFrame | None = None
    """Where the rounds pass through Python: the function that is called again and again, and from where."""


class Pointer(Fact, frozen=True, kw_only=True):
    """A register that points at memory, and what is there."""

    register: str
    value: int
    bytes: str
    """Hexadecimal."""
    points_into: str | None = None
    """The mapping: a path, `[stack]`, `[heap]` or `anonymous`; None: not known."""
    offset: int | None = None
    """How far into it; for a file, where in the file."""
    freed: str | None = None
    """How one sees that the memory had been given back: `cache`, `bin` or `filled`."""


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
    broke: str | None = None
    """What the pool raised instead when this exception came back from the worker."""


class SharedName(Fact, frozen=True, kw_only=True):
    """What a look-up that failed was about: made once for all processes, and filled by a function of its own."""

    name: str
    level: str
    """`module` or `class`."""
    file: str
    line: int
    changed_by: str
    """The function that fills it, and the line that begins with."""
    changed_at: int


class TriedAlone(Fact, frozen=True, kw_only=True):
    """Its item was run again, as the first thing in a fresh worker."""

    outcome: str
    """`passed` (that worker lived), `died the same way` or `died otherwise`, in the last of these tries."""
    tries: int
    others: int | None = None
    """Workers that were there beside it when it died."""
    others_then: int | None = None
    """Of these, those that had something to do when the last try began."""
    is_that_try: bool = False
    """This death is that of the try; the one before it was in company."""


class ParentEnd(Fact, frozen=True, kw_only=True):
    """Its parent had ended before it."""

    pid: int
    seconds_before: float
    signal: str | None = None
    exit_code: int | None = None


class SentSignal(Fact, frozen=True, kw_only=True):
    """Somebody of the job sent this process a signal."""

    signal: str
    sender_pid: int
    sender_role: str | None = None
    time: float | None = None
    where: str | None = None
    """What the sender noted beside it, e.g. its own file and line."""
    reason: str | None = None
    """Why, in the sender's own words, where it is one that says so: an engine's memory monitor."""
    is_for_memory: bool = False
    """That reason is the memory that the process took."""


class Cpu(Fact, frozen=True, kw_only=True):
    architecture: str
    model: str | None = None
    flags: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    """Flags that the host has and that CPUID denied to the process: an emulator, or a hypervisor that hides them."""
    not_enabled: tuple[str, ...] = ()
    """The CPU offers them, and the system does not let programs use the registers that they need (XCR0)."""


class MemoryPoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    seconds_before: float
    """Before the end."""
    resident: int
    swap: int = 0


class Memory(Fact, frozen=True, kw_only=True):
    """Bytes."""

    resident: int | None = None
    peak: int | None = None
    per_item: int | None = None
    """The median change of resident memory over `items` recent items."""
    items: int | None = None
    swap: int | None = None
    on_item: int | None = None
    """How much it grew since its last item began."""
    first: int | None = None
    """Resident when it was first seen."""
    curve: tuple[MemoryPoint, ...] | None = None
    """Oldest first; `resident` and `peak` are then of this curve."""


class Growth(Fact, frozen=True, kw_only=True):
    """Something that grew from item to item while the process lived."""

    name: str
    """`memory`, `private memory`, `open files`, `threads`, `shared memory` or `files in /dev/shm`."""
    per_item: float
    """Bytes, or how many."""
    items: int
    """Over so many items."""
    per_second: float | None = None
    used: int
    """In the end."""
    limit: int | None = None
    """None: there is none, or nobody knows it."""
    seconds_left: float | None = None
    """At this pace, from the moment of this evidence to the limit."""
    alike: int | None = None
    """How many of its siblings grow at about the same pace; None: nobody looked."""
    next_death: float | None = None
    """Seconds until these reach the limit."""


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


class Mention(Fact, frozen=True, kw_only=True):
    """One statement of fact that a log makes. The kinds are listed in evidence/text/README.md."""

    kind: str
    quote: str
    """The line, without colours, cut to a bearable length."""
    line: int
    """Counted from 1; 0: no log says it, but `lastwords run` saw it."""
    system: str
    """Whose words these are, e.g. `slurm`."""
    fields: dict[str, str] = {}
    """What the line says more closely: `signal`, `code`, `library`, `by`, ..."""


class HeldLock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A mutex of the C library that a thread waits for."""

    address: int
    owner: int | None = None
    """The thread that holds it."""
    owner_is_here: bool | None = None
    """False: no thread of this process has that number; after a fork the owner stayed behind in the parent."""


class HungThread(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    tid: int
    name: str | None = None
    state: str | None = None
    """The letter of /proc/PID/stat: R runs, S sleeps, D sleeps uninterruptibly, T is stopped."""
    blocked_in: str | None = None
    """A system call, or `running`."""
    blocked_on: str | None = None
    """The file, pipe or connection that this call waits for."""
    wait_channel: str | None = None
    frames: tuple[NativeFrame, ...] = ()
    """Native, innermost first."""
    lock: HeldLock | None = None


class Hang(Fact, frozen=True, kw_only=True):
    """A process that lives, and whose item takes longer than it may. What is said of no thread is the main one's."""

    seconds: float
    limit: float
    state: str | None = None
    blocked_in: str | None = None
    """A system call, or `running`."""
    blocked_on: str | None = None
    """The file, pipe or connection that this call waits for."""
    wait_channel: str | None = None
    lock: HeldLock | None = None
    ran: float | None = None
    """Part of one CPU that it used while we waited for the item."""
    waited: float | None = None
    """Part of the time that its threads were ready to run, and got no CPU."""
    answered: bool = True
    """False: it did not answer the probe signal, so there are no native stacks."""
    threads: tuple[HungThread, ...] = ()
    waits_for: str | None = None
    """`a lock of Python`, `a lock between processes`, `a mutex`; None: for none of these, or nobody knows."""
    parent_threads: int | None = None
    """Of its parent, when it was forked: a lock that another of them held then stays locked here."""
    others: int | None = None
    """How many other processes of the job were at work on items."""
    alike: int | None = None
    """How many of these hang in the same system call."""
    throttled: float | None = None
    """Part of the time that its group was not let run, while we waited for the item."""
    quota: float | None = None
    """CPUs that its group may use; None: no limit."""
    mount: str | None = None
    """Where the file system is mounted that the main thread waits for."""
    file_system: str | None = None
    """Its kind, and what is behind it: `nfs4 server:/data`."""


class MemoryGroup(Fact, frozen=True, kw_only=True):
    """A control group that the process was in, right after its death. Bytes."""

    path: str
    limit: int | None = None
    """None: there is none."""
    used: int | None = None
    peak: int | None = None
    failures: int | None = None
    """How often it was full when somebody asked for more."""


class Pressure(Fact, frozen=True, kw_only=True):
    """Per cent of the last ten seconds in which some, or all, tasks of the machine waited for the resource."""

    resource: str
    some: float
    full: float | None = None


class CpuTime(Fact, frozen=True, kw_only=True):
    cpus: int | None = None
    quota: float | None = None
    """CPUs that its group may use; None: no limit."""
    throttled: float | None = None
    """Part of its life in which its group was not let run."""
    stolen: float | None = None
    """Part of the machine's CPU time since then that the host of this virtual machine took."""
    load: float | None = None


class LimitUse(Fact, frozen=True, kw_only=True):
    """Something of which a process may have only so many."""

    name: str
    """As in /proc/PID/limits, e.g. `open files`."""
    used: int | None = None
    soft: int | None = None
    """None: no limit."""
    hard: int | None = None


class Space(Fact, frozen=True, kw_only=True):
    """Bytes of a file system."""

    path: str
    free: int
    total: int
    free_files: int | None = None


class KernelLine(Fact, frozen=True, kw_only=True):
    kind: str
    """`memory kill`, `segfault` or `trap`."""
    text: str
    constraint: str | None = None
    """For a memory kill: CONSTRAINT_MEMCG is a container's limit, CONSTRAINT_NONE the whole machine."""
    cgroup: str | None = None


class HostMemory(Fact, frozen=True, kw_only=True):
    """Bytes."""

    total: int | None = None
    available: int | None = None
    swap_free: int | None = None
    """None: there is no swap."""


class Place(Fact, frozen=True, kw_only=True):
    """Where it ran, as whoever started it would say."""

    host: str | None = None
    cgroup: str | None = None
    container: str | None = None
    orchestrator: dict[str, str] = {}
    """Variables from a short list that is known to hold no secrets."""


class Gpu(Fact, frozen=True, kw_only=True):
    """A GPU of the machine, right after the death. Bytes. None: it does not say."""

    index: int
    name: str | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    busy: float | None = None
    """Part of the last moments in which it computed."""
    temperature: int | None = None
    uncorrected_errors: int | None = None
    """Of its memory, since the driver was loaded."""


class Machine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The machine right after the death."""

    memory: HostMemory | None = None
    memory_groups: tuple[MemoryGroup, ...] | None = None
    """The process's own first, then each above it."""
    pressure: tuple[Pressure, ...] | None = None
    cpu: CpuTime | None = None
    limits: tuple[LimitUse, ...] | None = None
    spaces: tuple[Space, ...] | None = None
    kernel_log: tuple[KernelLine, ...] | None = None
    """Lines about this process since the run began; None: the log cannot be read here."""
    gpus: tuple[Gpu, ...] | None = None
    """None: there is no driver that could be asked."""
    place: Place | None = None


class MemoryTest(Fact, frozen=True, kw_only=True):
    """Patterns written into this machine's free memory and read back, after the death."""

    tested: int
    """Bytes."""
    passes: int
    seconds: float
    errors: int
    examples: tuple[str, ...] = ()


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """Something that would have helped, and how to have it next time."""

    what: str
    how_to_collect: str


class Copies(Fact, frozen=True, kw_only=True):
    """A run-time library of which a process should have one copy, and had several."""

    name: str
    """`OpenMP` or `libstdc++`."""
    paths: tuple[str, ...]


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
    shared_name: SharedName | None = None
    sent_signals: tuple[SentSignal, ...] | None = None
    parent_end: ParentEnd | None = None
    """None: it lived, or nobody watched it."""
    tried_alone: TriedAlone | None = None
    cpu: Cpu | None = None
    memory: Memory | None = None
    oom_kills: OomKills | None = None
    growth: tuple[Growth, ...] | None = None
    """Empty: nothing grew; None: nobody watched it."""
    progress: Progress | None = None
    shut_down: bool | None = None
    """Python came to its own, orderly end: `sys.exit()` passes through that, `os._exit()` does not."""
    events: tuple[Event, ...] | None = None
    mentions: tuple[Mention, ...] | None = None
    """What a log says, in the order of its lines; None: no log was read."""
    recursion: Recursion | None = None
    copies: tuple[Copies, ...] | None = None
    """Run-time libraries that were loaded more than once; None: nobody knows what was loaded."""
    pointers: tuple[Pointer, ...] | None = None
    machine: Machine | None = None
    hang: Hang | None = None
    """It lives, and does not get on; `status` is then None."""
    memory_test: MemoryTest | None = None
    missing: tuple[Missing, ...] = ()
    notes: tuple[str, ...] = ()
    """For maintainers: what went wrong while collecting."""
