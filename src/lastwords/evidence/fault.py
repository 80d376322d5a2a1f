"""The signal as the dying thread met it, and the machine state around it."""

from __future__ import annotations

import os
import re

from lastwords.evidence import box as raw
from lastwords.evidence import demangle, packages, signals
from lastwords.evidence.model import (
    Fault,
    Instruction,
    MemoryAccess,
    NativeFrame,
    NativeStack,
)

CRASH_SOURCE = "the crash handler in the process"
AUTOPSY_SOURCE = "the saved stack and registers, unwound after the death"
X86_PAGE_FAULT = 14
WRITE_BIT, FETCH_BIT = 1 << 1, 1 << 4
MOST_FRAMES = 512
OUTERMOST = 96
"""Of a deeper stack this many of the outermost frames are kept: they tell who began it."""
_NO_FILES = ("/dev/zero", "/memfd:", "/anon_hugepage", "[heap]", "[stack]", "[anon")
"""Mappings with a name that are memory all the same: code found there was made at run time."""


_BUILD_PARTS = re.compile(r"( \[clone [.\w]{1,64}\]|\.(cold|part|constprop|isra|lto_priv)\b[.\d]*){1,4}$")
"""Pieces that a compiler makes of a function: to a reader, and from build to build, they are that function."""


def fault(crash: raw.Crash, pid: int | None, autopsy: raw.Autopsy) -> Fault:
    use = autopsy.address_in
    return Fault(
        source=CRASH_SOURCE,
        signal=signals.name_of(crash.signal),
        code=crash.code,
        code_name=signals.code_name(crash.signal, crash.code),
        address=_address(crash, use),
        sender_pid=crash.sender_pid or None if crash.code <= 0 else None,
        sender_uid=crash.sender_uid if crash.code <= 0 and crash.sender_pid else None,
        thread=crash.tid,
        thread_name=crash.thread_name or None,
        is_main_thread=crash.tid == pid if crash.tid and pid else None,
        architecture=crash.architecture,
        registers=crash.registers,
        pc=crash.registers.get("rip", crash.registers.get("pc")),
        sp=crash.registers.get("rsp", crash.registers.get("sp")),
        access=_access(crash),
        abort_message=crash.abort_message or None,
        address_in=_mapping(use.fault_mapping) if use else None,
        pc_in=_mapping(use.pc_mapping) if use else None,
        pc_is_executable="x" in use.pc_mapping.permissions if use and use.pc_mapping else None,
        canonical=use.canonical if use else None,
        flipped_bit=use.flipped_bit if use else None,
        distance_to_sp=use.distance_to_sp if use else None,
        handled=crash.state == "handled",
        complete=crash.state != "begun",
        exception_type=demangle.type_name(crash.exception_type) if crash.exception_type else None,
        exception_what=crash.exception_what or None,
        asked_of_new=autopsy.arguments.asked_of_new,
        fatal_text=autopsy.arguments.fatal_text,
        address_permissions=use.fault_mapping.permissions or None if use and use.fault_mapping else None,
        **_stack_limits(crash, use),
        **_place_in_file(use.fault_mapping if use else None),
    )


def _place_in_file(mapping: raw.Mapping | None) -> dict[str, int | None]:
    if mapping is None or mapping.deleted or not mapping.path.startswith("/"):
        return {}
    try:
        size = os.stat(mapping.path).st_size
    except (OSError, ValueError):
        size = None
    return {"address_offset": mapping.offset, "file_size": size}


def _stack_limits(crash: raw.Crash, use: raw.AddressUse | None) -> dict[str, int | None]:
    """As the process knew them; a core has only the mapping that the stack pointer, or the fault, is next to."""
    if crash.stack_low and crash.stack_high:
        return {"stack_low": crash.stack_low, "stack_high": crash.stack_high}
    if use and use.fault_mapping and use.fault_mapping.permissions.startswith("---"):
        return {"stack_low": use.fault_mapping.end}  # a guard page: the stack, if it is one's, ends there
    near = (use.sp_mapping, use.fault_mapping, use.nearest_mapping) if use else ()
    stack = next((one for one in near if one is not None and one.path == "[stack]"), None)
    return {"stack_low": stack.start if stack else None, "stack_high": stack.end if stack else None}


def _address(crash: raw.Crash, use: raw.AddressUse | None) -> int | None:
    """A signal that was sent has no address; one of a wild pointer says 0, and the registers know better."""
    if crash.code <= 0:
        return None
    if use and use.recomputed:
        return use.fault_address
    return crash.address


def _access(crash: raw.Crash) -> str | None:
    if crash.architecture != "x86_64" or crash.trap != X86_PAGE_FAULT or crash.trap_error is None:
        return None
    if crash.trap_error & FETCH_BIT:
        return "execute"
    return "write" if crash.trap_error & WRITE_BIT else "read"


def _mapping(mapping: raw.Mapping | None) -> str | None:
    return (mapping.path or "anonymous") if mapping else None


def instruction(autopsy: raw.Autopsy) -> Instruction | None:
    found = autopsy.instruction
    if found is None:
        return None
    return Instruction(
        source=AUTOPSY_SOURCE,
        address=found.address,
        bytes=found.bytes,
        text=found.text,
        mnemonic=found.mnemonic,
        extensions=found.extensions,
        memory=tuple(
            MemoryAccess(text=one.text, address=one.address, read=one.read, write=one.write, size=one.size)
            for one in found.memory
        ),
        is_trap=found.is_trap,
        is_valid=found.is_valid,
        matches_file=autopsy.code_matches_file,
        is_privileged=found.is_privileged,
    )


def native_stack(autopsy: raw.Autopsy) -> NativeStack | None:
    if not autopsy.frames:
        return None
    frames, gap, omitted = _kept(autopsy)
    return NativeStack(
        source=AUTOPSY_SOURCE,
        frames=tuple(_native_frame(frame) for frame in frames),
        stopped_because=autopsy.stopped_because,
        gap_before=gap,
        omitted=omitted,
    )


def _kept(autopsy: raw.Autopsy) -> tuple[tuple[raw.NativeFrame, ...], int | None, int | None]:
    """Both ends of the stack, the place of the gap between them, and its size where that is known."""
    frames, gap = autopsy.frames, autopsy.omitted
    if len(frames) <= MOST_FRAMES:
        return frames, gap.before_frame if gap else None, gap.count if gap else None
    inner, outer = frames[: MOST_FRAMES - OUTERMOST], frames[-OUTERMOST:]
    dropped = sum(1 for frame in frames[len(inner) : -OUTERMOST] if not frame.inlined)
    is_known = gap is None or gap.count is not None
    return (*inner, *outer), len(inner), dropped + (gap.count or 0 if gap else 0) if is_known else None


def _native_frame(frame: raw.NativeFrame) -> NativeFrame:
    library = None if frame.library is None or frame.library.startswith(_NO_FILES) else frame.library
    package = packages.owner(library) if library else None
    return NativeFrame(
        address=frame.address,
        function=_BUILD_PARTS.sub("", frame.function) if frame.function else None,
        library=library,
        offset=frame.offset_in_library,
        build_id=frame.build_id,
        package=package.name if package else None,
        package_version=package.version if package else None,
        file=frame.file,
        line=frame.line,
        inlined=frame.inlined,
        trust=frame.trust,
    )
