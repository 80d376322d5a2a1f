"""Puts together what the readers found in a log: statements, the ending, the fault, the exception."""

from __future__ import annotations

import os
import pkgutil
import re
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from io import BytesIO
from typing import BinaryIO

import msgspec

from lastwords.evidence import signals
from lastwords.evidence.missing import missing
from lastwords.evidence.model import (
    Evidence,
    Fault,
    Mention,
    NativeFrame,
    NativeStack,
    Process,
    PythonException,
    Status,
)
from lastwords.evidence.text import python_stack
from lastwords.evidence.text.echoes import is_echo
from lastwords.evidence.text.excerpt import Excerpt, excerpt_of
from lastwords.evidence.text.hedges import is_warning
from lastwords.evidence.text.missing import missing_from_text
from lastwords.evidence.text.python_traceback import Raised, as_exception, raised
from lastwords.evidence.text.reader import Reader, read

MOST_MENTIONS = 600
WENT_ON = 2
HARMLESS = frozenset({"library-missing", "module-missing", "network-failure", "file-damaged", "open-files"})
"""What a warning tells of these was lived with as soon as another end, or so many lines, follow."""
NEAR = 200
"""Exceptions this many lines apart belong to one story."""


@cache
def readers() -> tuple[Reader, ...]:
    """Every module of this package that has a READER."""
    package = __name__.rpartition(".")[0]
    path = [os.path.dirname(__file__)]
    modules = (import_module(f"{package}.{found.name}") for found in pkgutil.iter_modules(path))
    found = (vars(module).get("READER") for module in modules)
    return tuple(one for one in found if isinstance(one, Reader))


def from_log(path: str | os.PathLike[str]) -> Evidence:
    """Raises OSError if the file cannot be read, and UnreadableLog if it holds no text."""
    with open(path, "rb") as file:
        return from_stream(file, name=os.path.basename(os.fspath(path)) or "log")


def from_text(data: str | bytes, name: str = "log") -> Evidence:
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    return from_stream(BytesIO(raw), name)


def from_stream(file: BinaryIO, name: str = "log") -> Evidence:
    """Read to its end, a piece at a time: the log may be larger than memory."""
    lines = excerpt_of(file, name)
    mentions, notes = read_mentions(lines)
    exceptions = raised(lines)
    mentions = focused(_messengers(outlived(mentions, exceptions, lines)))
    fault = _fault(mentions)
    evidence = Evidence(
        process=_process(mentions),
        status=_status(mentions),
        fault=fault,
        native_stack=_native_stack(mentions, fault),
        python_stack=python_stack.read(lines),
        exception=_exception(exceptions, lines),
        mentions=mentions,
        notes=(*lines.notes, *notes),
    )
    wanted = (*missing_from_text(evidence), *missing(evidence))
    return msgspec.structs.replace(evidence, missing=tuple({one.what: one for one in wanted}.values()))


def read_mentions(lines: Excerpt) -> tuple[tuple[Mention, ...], tuple[str, ...]]:
    """What all readers found, by line. A reader that fails is a note, and the rest go on."""
    notes: list[str] = []
    found = [one for reader in readers() for one in _read(reader, lines, notes)]
    unique = {(one.kind, one.line, one.fields.get("signal")): one for one in reversed(found)}
    ordered = sorted(unique.values(), key=lambda one: one.line)
    if len(ordered) > MOST_MENTIONS:
        ordered = [*ordered[: MOST_MENTIONS // 2], *ordered[-MOST_MENTIONS // 2 :]]
    return tuple(ordered), tuple(notes)


def _read(reader: Reader, lines: Excerpt, notes: list[str]) -> list[Mention]:
    try:
        return list(read(reader, lines))
    except Exception as error:  # noqa: BLE001 (hostile text must not take the other readers along)
        notes.append(f"the reader of {reader.system} failed: {type(error).__name__}: {error}")
        return []


def focused(mentions: tuple[Mention, ...]) -> tuple[Mention, ...]:
    """Without what the kernel says of other processes, where somebody else names the one that it is about.

    A kernel's log has every death of a host in it. A driver's line with a pid that the kernel's log has, too, tells
    which of them is meant.
    """
    kernel = {one.fields.get("pid") for one in mentions if one.system == "kernel"} - {None}
    meant = {one.fields.get("pid") for one in mentions if one.system != "kernel"} & kernel
    if not meant:
        return mentions
    return tuple(one for one in mentions if one.system != "kernel" or one.fields.get("pid") in {None, *meant})


def outlived(mentions: tuple[Mention, ...], exceptions: list[Raised], lines: Excerpt) -> tuple[Mention, ...]:
    """Without warnings after which it went on: tensorflow's about libraries that it can do without."""
    told = (one for one in mentions if one.kind != "importing")
    ends = [one.line for one in told if one.kind not in HARMLESS or not is_warning(one.quote)]
    ends.extend(lines.lines[one.at].number for one in exceptions if one.frames)
    ends.append(lines.lines[-1].number - WENT_ON if lines.lines else 0)
    alone = HARMLESS - {one.kind for one in mentions if not is_warning(one.quote)}
    return tuple(
        one for one in mentions if one.kind not in alone or one.line >= max(ends) or not is_warning(one.quote)
    )


# What a C++ exception's text, or the line of a Python one, can name by itself.
NEAR_MESSENGER = 2
REASONS = frozenset({
    "cuda-illegal", "cuda-assert", "cuda-fork", "gpu-oom", "gpu-arch", "hardware-error", "collective-timeout",
    "peer-lost", "network-failure", "no-space", "open-files", "no-threads", "shm-full", "abi-conflict", "version-mismatch",
})  # fmt: skip


def _messengers(mentions: tuple[Mention, ...]) -> tuple[Mention, ...]:
    """A C++ exception beside a line that names the reason is its messenger, and no reason by itself."""
    reasons = {one.line for one in mentions if one.kind in REASONS}
    near = {line + distance for line in reasons for distance in range(-NEAR_MESSENGER, NEAR_MESSENGER + 1)}
    kinds = {"cxx-terminate", "cxx-what", "assert-failed"}
    crashed = min((one.line for one in mentions if _is_crash(one)), default=None)
    failed = min((one.line for one in mentions if _is_crash(one) or _is_failure(one)), default=None)
    return tuple(
        msgspec.structs.replace(one, kind="messenger")
        if (one.kind in kinds and one.line in near)
        or _is_clearing_up(one, failed if one.fields.get("scope") == "STEP" else crashed)
        else one
        for one in mentions
    )


def _is_crash(one: Mention) -> bool:
    return one.kind in ("signal", "fault") and signals.family_of(one.fields.get("signal", "")) in (
        "fault",
        "abort",
    )


FAILURES = REASONS | {
    "allocation-failed", "oom-kill", "memory-limit", "bad-alloc", "fatal-python", "module-missing", "library-missing",
    "unpicklable", "version-mismatch", "parent-gone", "no-progress", "memory-used-up",
}  # fmt: skip


def _is_failure(one: Mention) -> bool:
    """What a step can fail of, before its other tasks are ended: a cancelled job has no such line above."""
    return one.kind in FAILURES or (one.kind == "exception" and "traceback" in one.fields)


def _is_clearing_up(one: Mention, crashed: int | None) -> bool:
    """A launcher cancels the other tasks of a step when one of them has failed, and names nobody who asked for it."""
    return (
        one.kind == "cancelled"
        and crashed is not None
        and one.line > crashed
        and " by " not in one.quote.lower()
    )


def _rank(name: str) -> int:
    """A fault says more than the kill that followed it."""
    order = {"fault": 0, "abort": 1}
    return order.get(signals.family_of(name) or "", 2 if name == "SIGKILL" else 3)


def _status(mentions: Iterable[Mention]) -> Status | None:
    ends = [one for one in mentions if one.kind in ("signal", "fault") and one.fields.get("signal")]
    if ends:
        best = min(ends, key=lambda one: _rank(one.fields["signal"]))
        return Status(
            source=best.source, signal=best.fields["signal"], core_dumped="core dumped" in best.quote or None
        )
    exits = [one for one in mentions if one.kind == "exit" and one.fields["code"] != "0"]
    return Status(source=exits[0].source, exit_code=int(exits[0].fields["code"])) if exits else None


def _process(mentions: Iterable[Mention]) -> Process | None:
    known = next((one for one in mentions if one.fields.get("pid", "").isdigit()), None)
    return Process(source=known.source, pid=int(known.fields["pid"])) if known else None


def _number(text: str | None) -> int | None:
    if text is None:
        return None
    return 0 if text in ("(null)", "(nil)") else int(text, 16)


def _fault(mentions: Iterable[Mention]) -> Fault | None:
    """What the kernel's line about a fault, or a crash handler's, says of it."""
    found = next((one for one in mentions if one.kind == "fault"), None)
    if found is None:
        return None
    fields, signal = found.fields, found.fields["signal"]
    error, address, sp = (
        _number(fields.get("error")),
        _number(fields.get("address")),
        _number(fields.get("sp")),
    )
    code, code_name = _code(signal, fields, error)
    return Fault(
        source=found.source,
        signal=signal,
        code=code,
        code_name=code_name,
        address=address,
        pc=_number(fields.get("pc")),
        sp=sp,
        access=_access(error),
        pc_in=fields.get("library"),
        distance_to_sp=address - sp if address is not None and sp is not None else None,
    )


def _code(signal: str, fields: dict[str, str], error: int | None) -> tuple[int, str | None]:
    """Bit 0 of the page-fault error is set when the page was there and access was refused."""
    if fields.get("code") == "SI_KERNEL":
        return 128, "SI_KERNEL"
    if signal == "SIGSEGV":
        refused = (error is not None and error & 1) or "invalid permissions" in fields.get("why", "")
        return (2, "SEGV_ACCERR") if refused else (1, "SEGV_MAPERR")
    return {"SIGILL": (2, "ILL_ILLOPN"), "SIGFPE": (1, "FPE_INTDIV")}.get(signal, (1, None))


def _access(error: int | None) -> str | None:
    if error is None:
        return None
    return "execute" if error & 16 else "write" if error & 2 else "read"


# Where a signal enters the process: the fault is in the frame below.
_HANDLER = re.compile(r"_sigtramp|__restore_rt|__sigaction|_L_unlock|funlockfile")


def _native_stack(mentions: tuple[Mention, ...], fault: Fault | None) -> NativeStack | None:
    """The frames that a crash handler printed; else the one library that the kernel named."""
    frames = [
        NativeFrame(
            address=0,
            function=one.fields.get("function") or None,
            library=one.fields.get("library"),
            trust="text",
        )
        for one in mentions
        if one.kind == "native-frame" and not _HANDLER.match(one.fields.get("function", ""))
    ]
    if frames and fault is not None:
        first = next(one for one in mentions if one.kind == "native-frame")
        return NativeStack(source=first.source, frames=tuple(frames))
    if fault is not None and fault.pc_in:
        frame = NativeFrame(address=fault.pc or 0, library=fault.pc_in, trust="text")
        return NativeStack(source=fault.source, frames=(frame,))
    return None


def _exception(found: list[Raised], lines: Excerpt) -> PythonException | None:
    """The first of the last story that is no echo of another process' death; else the last one."""
    if not found:
        return None
    last = found[-1]
    story = [one for one in found if last.at - one.at <= NEAR]
    chosen = next((one for one in story if not is_echo(one.kind, one.message)), last)
    return as_exception(chosen, lines)
