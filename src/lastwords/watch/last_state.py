"""What a black box says about the end of its process: no more than is needed to call it a death or not."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from lastwords import _native

ALREADY_ENDING = "it was ending already"
"""What a sender notes beside a signal to a process that had begun to end (crates/python/src/wrappers.rs)."""


@dataclass(frozen=True, slots=True)
class Raised:
    kind: str
    message: str
    fatal: bool
    time_ns: int

    @property
    def name(self) -> str:
        return self.kind.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Sent:
    """A signal that this process sent to another, or to a whole group (target <= 0, as kill(2) has it)."""

    target: int
    signal: int
    time_ns: int
    too_late: bool = False
    """Its target was ending already."""


@dataclass(frozen=True, slots=True)
class StopReason:
    """Why this process was about to end another."""

    target: int
    time_ns: int
    text: str


@dataclass(frozen=True, slots=True)
class LastState:
    pid: int = 0
    parent: int | None = None
    role: str | None = None
    worker: int | None = None
    born_ns: int = 0
    exit_said: bool = False
    exit_code: int | None = None
    items_begun: int = 0
    has_item: bool = False
    """It was in the middle of one."""
    crash_signal: int | None = None
    raised: tuple[Raised, ...] = ()
    sent: tuple[Sent, ...] = ()
    stop_reasons: tuple[StopReason, ...] = ()
    became_another_program: bool = False
    cgroup: str | None = None
    """The lines of /proc/PID/cgroup at its birth; None: not kept, or seen from another namespace than ours."""

    @property
    def fatal(self) -> Raised | None:
        return next((one for one in reversed(self.raised) if one.fatal), None)


def read(path: str) -> LastState | None:
    """None: the file is gone, or is no box. Works on the box of a living process, too."""
    try:
        return from_record(json.loads(_native.read_box(path)))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def from_record(record: Mapping[str, Any]) -> LastState:
    identity, live = record.get("identity") or {}, record.get("live") or {}
    events = record.get("events") or ()
    return LastState(
        pid=identity.get("pid") or 0,
        parent=identity.get("parent"),
        role=identity.get("role"),
        worker=identity.get("worker"),
        born_ns=identity.get("born_monotonic_ns") or 0,
        exit_said=bool(live.get("exit_said")),
        exit_code=live.get("exit_code"),
        items_begun=live.get("items_begun") or 0,
        has_item=_has_item(live.get("current") or {}),
        crash_signal=_crash_signal(record.get("crash") or {}),
        raised=tuple(_raised(one) for one in record.get("exceptions") or ()),
        sent=tuple(_sent(one) for one in events if one.get("kind") == "sent_signal"),
        stop_reasons=tuple(_stop_reason(one) for one in events if one.get("kind") == "stop_reason"),
        became_another_program=_became_another_program(events),
        cgroup=_cgroup(identity),
    )


def _cgroup(identity: Mapping[str, Any]) -> str | None:
    return identity.get("cgroup") if identity.get("cgroup_namespace") == _cgroup_namespace() else None


@cache
def _cgroup_namespace() -> int | None:
    """Our own. Kernels before 4.6 have none, and nobody who lives there does."""
    try:
        return os.stat("/proc/self/ns/cgroup").st_ino
    except OSError:
        return None


def _became_another_program(events: Sequence[Mapping[str, Any]]) -> bool:
    """The last word was an exec. One that failed is followed by a note, and by whatever came after."""
    return bool(events) and events[-1].get("kind") == "exec"


def _has_item(current: Mapping[str, Any]) -> bool:
    is_named = current.get("index") is not None or current.get("key") is not None
    return is_named and current.get("phase") != "idle"


def _crash_signal(crash: Mapping[str, Any]) -> int | None:
    """A crash that the previous handler repaired has the state `handled`, and killed nobody."""
    return crash.get("signal") if crash.get("state") in ("begun", "complete") else None


def _raised(one: Mapping[str, Any]) -> Raised:
    kind, message = one.get("kind") or "", one.get("message") or ""
    return Raised(kind, message, bool(one.get("fatal")), one.get("time_ns") or 0)


def _stop_reason(one: Mapping[str, Any]) -> StopReason:
    return StopReason(one.get("a") or 0, one.get("time_ns") or 0, one.get("text") or "")


def _sent(one: Mapping[str, Any]) -> Sent:
    too_late = one.get("text") == ALREADY_ENDING
    return Sent(one.get("a") or 0, one.get("b") or 0, one.get("time_ns") or 0, too_late)
