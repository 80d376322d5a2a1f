"""The black box as the native reader hands it over: JSON of `_native.read_box` and `_native.autopsy_box`.

A box is written by a process that was dying and may come from a stranger: every field may be absent,
and nothing that a box says can make the reading raise, except that the file is not a box at all.
"""

from __future__ import annotations

import os

import msgspec

from lastwords import _native


class UnreadableBox(ValueError):
    """The file cannot be opened, or is not a black box. `reason` is for the user."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class Identity(msgspec.Struct, frozen=True):
    pid: int = 0
    parent: int | None = None
    start_ticks: int | None = None
    born_unix_ns: int | None = None
    born_monotonic_ns: int | None = None
    uid: int | None = None
    forked: bool | None = None
    worker: int | None = None
    rank: int | None = None
    role: str | None = None
    host: str | None = None
    runtime: str | None = None
    executable: str | None = None
    command: tuple[str, ...] | None = None
    cpuid: tuple[int, ...] | None = None


class Current(msgspec.Struct, frozen=True):
    index: int | None = None
    key: str | None = None
    phase: str | None = None
    started_ns: int | None = None


class Live(msgspec.Struct, frozen=True):
    items_begun: int = 0
    items_done: int = 0
    exit_said: bool = False
    exit_code: int | None = None
    current: Current | None = None
    called: str | None = None


class DoneItem(msgspec.Struct, frozen=True):
    index: int | None = None
    key: str | None = None
    started_ns: int | None = None
    duration_ns: int | None = None
    rss_change_kib: int | None = None


class Event(msgspec.Struct, frozen=True):
    kind: str = ""
    time_ns: int | None = None
    tid: int | None = None
    a: int | None = None
    b: int | None = None
    text: str | None = None


class Frame(msgspec.Struct, frozen=True):
    file: str = ""
    line: int | None = None
    function: str = ""


class Raised(msgspec.Struct, frozen=True):
    kind: str = ""
    message: str = ""
    fatal: bool = False
    time_ns: int | None = None
    time_unix_ns: int | None = None
    index: int | None = None
    key: str | None = None
    frames: tuple[Frame, ...] = ()


class Crash(msgspec.Struct, frozen=True):
    state: str | None = None
    steps_done: tuple[str, ...] = ()
    steps_failed: tuple[str, ...] = ()
    signal: int = 0
    code: int = 0
    error: int | None = None
    address: int | None = None
    sender_pid: int | None = None
    sender_uid: int | None = None
    tid: int | None = None
    thread_name: str | None = None
    time_unix_ns: int | None = None
    time_ns: int | None = None
    duration_ns: int | None = None
    architecture: str | None = None
    registers: dict[str, int] = {}
    trap: int | None = None
    trap_error: int | None = None
    on_alternate_stack: bool | None = None
    nested_signal: int | None = None
    nested_step: str | int | None = None
    other_crashes: int | None = None
    abort_message: str | None = None
    exception_type: str | None = None
    exception_what: str | None = None
    stack_address: int | None = None
    stack_length: int | None = None
    stack_low: int | None = None
    stack_high: int | None = None


class Pointed(msgspec.Struct, frozen=True):
    bytes: str = ""
    mapping: str | None = None
    offset: int | None = None


class Thread(msgspec.Struct, frozen=True):
    tid: int | None = None
    name: str | None = None


class Box(msgspec.Struct, frozen=True):
    identity: Identity | None = None
    live: Live | None = None
    items: tuple[DoneItem, ...] = ()
    events: tuple[Event, ...] = ()
    exceptions: tuple[Raised, ...] = ()
    crash: Crash | None = None
    pointed: dict[str, Pointed] = {}
    threads: tuple[Thread, ...] | None = None
    python_text: str | None = None
    notes: tuple[str, ...] = ()


class NativeFrame(msgspec.Struct, frozen=True):
    address: int = 0
    function: str | None = None
    library: str | None = None
    offset_in_library: int | None = None
    build_id: str | None = None
    file: str | None = None
    line: int | None = None
    inlined: bool = False
    signal_frame: bool = False
    trust: str = "guess"


class Operand(msgspec.Struct, frozen=True):
    text: str = ""
    address: int | None = None
    read: bool = False
    write: bool = False
    size: int | None = None


class Instruction(msgspec.Struct, frozen=True):
    address: int = 0
    bytes: str = ""
    text: str = ""
    mnemonic: str = ""
    extensions: tuple[str, ...] = ()
    memory: tuple[Operand, ...] = ()
    is_trap: bool = False
    is_privileged: bool = False
    is_valid: bool = True


class Mapping(msgspec.Struct, frozen=True):
    path: str = ""
    permissions: str = ""
    start: int | None = None
    end: int | None = None
    offset: int | None = None
    deleted: bool = False


class AddressUse(msgspec.Struct, frozen=True):
    fault_address: int | None = None
    recomputed: bool = False
    canonical: bool | None = None
    flipped_bit: int | None = None
    fault_mapping: Mapping | None = None
    nearest_mapping: Mapping | None = None
    distance_to_nearest: int | None = None
    distance_to_sp: int | None = None
    pc_mapping: Mapping | None = None
    sp_mapping: Mapping | None = None


class Omitted(msgspec.Struct, frozen=True):
    before_frame: int = 0
    count: int | None = None


class Arguments(msgspec.Struct, frozen=True):
    asked_of_new: int | None = None
    fatal_text: str | None = None


class Autopsy(msgspec.Struct, frozen=True):
    frames: tuple[NativeFrame, ...] = ()
    stopped_because: str | None = None
    omitted: Omitted | None = None
    instruction: Instruction | None = None
    address_in: AddressUse | None = None
    code_matches_file: bool | None = None
    arguments: Arguments = Arguments()
    libraries: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


# Made here and not with their first use: two threads that let msgspec (0.22) decode a type for the first time crash the
# process. Seen with two Dask workers that died together, whose nannies live in the client.
_BOX = msgspec.json.Decoder(Box)
_AUTOPSY = msgspec.json.Decoder(Autopsy)


def read(path: str | os.PathLike[str]) -> Box:
    """Raises UnreadableBox, and nothing else."""
    name = os.fspath(path)
    try:
        return _BOX.decode(_native.read_box(name))
    except OSError as error:
        raise UnreadableBox(name, error.strerror or "cannot be read") from error
    except ValueError as error:  # msgspec's own errors are ValueErrors too
        raise UnreadableBox(name, str(error)) from error


def autopsy(path: str | os.PathLike[str]) -> Autopsy:
    """The offline work on the saved stack. It never raises: what failed is a note."""
    try:
        return _AUTOPSY.decode(_native.autopsy_box(os.fspath(path)))
    except (OSError, ValueError) as error:
        return Autopsy(notes=(f"autopsy: {error}",))
