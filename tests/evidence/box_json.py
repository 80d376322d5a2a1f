"""Boxes and autopsies as the native reader prints them, to be changed by each test."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from lastwords import _native

BORN_UNIX = 1_794_783_600_000_000_000
BORN_MONOTONIC = 1_000_000_000_000
SECOND = 1_000_000_000

PYTHON_TEXT = """Current thread 0x00007f3a5c1ff740 (most recent call first):
  File "/srv/job/work.py", line 7 in load
  File "/srv/job/work.py", line 12 in <module>

Thread 0x00007f3a5b7fe640 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
"""


def identity(**changes: Any) -> dict[str, Any]:
    return {
        "pid": 4711,
        "parent": 4700,
        "start_ticks": 99,
        "born_unix_ns": BORN_UNIX,
        "born_monotonic_ns": BORN_MONOTONIC,
        "uid": 1000,
        "forked": True,
        "worker": 3,
        "rank": None,
        "role": "DataLoader worker",
        "host": None,
        "runtime": "CPython 3.11.7",
        "executable": "/usr/bin/python3",
        "command": ["python", "job.py"],
        **changes,
    }


def live(**changes: Any) -> dict[str, Any]:
    current = {
        "index": 5,
        "key": "dataset[5]",
        "phase": "fetch",
        "started_ns": BORN_MONOTONIC + 2 * SECOND,
    }
    return {
        "items_begun": 6,
        "items_done": 5,
        "exit_said": False,
        "exit_code": None,
        "current": current,
        **changes,
    }


def crash(**changes: Any) -> dict[str, Any]:
    return {
        "state": "complete",
        "steps_done": ["signal", "code"],
        "steps_failed": [],
        "signal": 11,
        "code": 1,
        "error": 0,
        "address": 24,
        "sender_pid": None,
        "sender_uid": None,
        "syscall": None,
        "tid": 4711,
        "thread_name": "python",
        "time_unix_ns": BORN_UNIX + 3 * SECOND,
        "time_ns": BORN_MONOTONIC + 3 * SECOND,
        "duration_ns": 131_445,
        "architecture": "x86_64",
        "registers": {"rax": 0, "rip": 0x7F0000001000, "rsp": 0x7FFC00000000, "r8": 2**64 - 1},
        "flags": 66179,
        "trap": 14,
        "trap_error": 4,
        "on_alternate_stack": True,
        "nested_step": None,
        "nested_signal": 0,
        "other_crashes": 0,
        "abort_message": None,
        **changes,
    }


def raised(kind: str, message: str, **changes: Any) -> dict[str, Any]:
    frames = [{"file": "/srv/job/work.py", "line": 3, "function": "load"}]
    return {
        "fatal": False,
        "time_ns": BORN_MONOTONIC + SECOND,
        "time_unix_ns": BORN_UNIX + SECOND,
        "index": None,
        "key": None,
        "kind": kind,
        "message": message,
        "frames": frames,
        **changes,
    }


def sent(target: int, signal: int, **changes: Any) -> dict[str, Any]:
    return {
        "time_ns": BORN_MONOTONIC + SECOND,
        "kind": "sent_signal",
        "tid": 1,
        "a": target,
        "b": signal,
        "text": "",
        **changes,
    }


def box(**changes: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "identity": identity(),
        "live": live(),
        "items": [],
        "events": [],
        "exceptions": [],
        "crash": None,
        "pointed": {},
        "threads": [],
        "python_text": None,
        "notes": [],
        **changes,
    }


def autopsy(**changes: Any) -> dict[str, Any]:
    frame = {
        "address": 0x7F0000001000,
        "function": "sum_values",
        "raw_function": "sum_values",
        "library": "/srv/job/zoonative.so",
        "offset_in_library": 0x1000,
        "build_id": "ab",
        "file": None,
        "line": None,
        "inlined": False,
        "signal_frame": False,
        "trust": "context",
    }
    return {
        "frames": [frame],
        "stopped_because": "outermost frame",
        "omitted": None,
        "instruction": {
            "address": 0x7F0000001000,
            "bytes": "8b4718",
            "text": "mov eax, [rdi+18h]",
            "mnemonic": "mov",
            "extensions": [],
            "memory": [{"text": "[rdi+18h]", "address": 24, "read": True, "write": False, "size": 4}],
            "is_trap": False,
            "is_privileged": False,
            "is_valid": True,
            "source": "memory",
        },
        "address_in": {
            "fault_address": 24,
            "recomputed": False,
            "canonical": True,
            "fault_mapping": None,
            "distance_to_sp": -100,
            "pc_mapping": {"path": "/srv/job/zoonative.so", "permissions": "r-xp", "start": 1, "end": 2},
        },
        "code_matches_file": True,
        "notes": [],
        **changes,
    }


class Shelf:
    """Stands in for the native reader: boxes by path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.boxes: dict[str, Any] = {}
        self.autopsies: dict[str, Any] = {}
        monkeypatch.setattr(_native, "read_box", lambda path: self._read(self.boxes, path))
        monkeypatch.setattr(_native, "autopsy_box", lambda path: self._read(self.autopsies, path))

    def put(self, name: str, content: dict[str, Any], found: dict[str, Any] | None = None) -> str:
        path = str(Path("/boxes") / name)
        self.boxes[path] = copy.deepcopy(content)
        self.autopsies[path] = copy.deepcopy(found or autopsy())
        return path

    @staticmethod
    def _read(shelf: dict[str, Any], path: Any) -> bytes:
        if str(path) not in shelf:
            raise FileNotFoundError(2, "No such file or directory")
        content = shelf[str(path)]
        if isinstance(content, Exception):
            raise content
        return json.dumps(content).encode()
