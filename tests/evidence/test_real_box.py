"""A real black box of a process that really died: the native reader and our structs mean the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lastwords.diagnosis import explain
from lastwords.evidence import Evidence, from_box
from lastwords.evidence.status import from_exit_code

VICTIM = """
import ctypes, os, sys
from lastwords import _native
_native.start(sys.argv[1])
_native.describe(role="victim", worker=3)
for number in range(6):
    _native.begin(number, f"load({number})", 5)
    if number == 5:
        exec(sys.argv[2])
    _native.end()
"""


def die(directory: Path, how: str) -> tuple[Path, int]:
    directory.mkdir(mode=0o700)
    variables = {name: value for name, value in os.environ.items() if not name.startswith("LASTWORDS")}
    done = subprocess.run(
        [sys.executable, "-c", VICTIM, str(directory), how], env=variables, capture_output=True, check=False
    )
    (path,) = directory.glob("*.box")
    return path, done.returncode


@pytest.fixture
def segfault(tmp_path: Path) -> Evidence:
    path, code = die(tmp_path / "boxes", "ctypes.string_at(8)")
    return from_box(path, from_exit_code(code, "exit code"))


def test_who_it_was_and_what_it_did(segfault: Evidence):
    assert segfault.process is not None
    assert (segfault.process.worker, segfault.process.role) == (3, "victim")
    assert segfault.item is not None
    assert (segfault.item.index, segfault.item.key, segfault.item.phase) == (5, "load(5)", "run")
    assert segfault.item.seconds is not None
    assert 0 <= segfault.item.seconds < 10
    assert segfault.progress is not None
    assert (segfault.progress.begun, segfault.progress.done) == (6, 5)


def test_what_the_hardware_said(segfault: Evidence):
    assert segfault.status is not None
    assert segfault.status.signal == "SIGSEGV"
    fault = segfault.fault
    assert fault is not None
    assert (fault.signal, fault.code_name, fault.address) == ("SIGSEGV", "SEGV_MAPERR", 8)
    assert fault.is_main_thread
    assert fault.pc
    if fault.architecture == "x86_64":
        assert fault.access == "read"
        assert fault.pc == fault.registers["rip"]


def test_the_native_stack_reaches_ctypes(segfault: Evidence):
    assert segfault.native_stack is not None
    libraries = [frame.library or "" for frame in segfault.native_stack.frames]
    assert any("_ctypes" in library for library in libraries)
    assert segfault.native_stack.frames[0].trust == "context"


def test_the_public_api_explains_it(tmp_path: Path):
    path, _ = die(tmp_path / "boxes", "ctypes.string_at(8)")
    diagnosis = explain(path)
    assert diagnosis.best is not None
    assert diagnosis.best.id == "null-pointer"
    assert diagnosis.best.facts["offset"] == 8


def test_a_box_cut_short_anywhere_is_refused_or_read(tmp_path: Path):
    path, _ = die(tmp_path / "boxes", "ctypes.string_at(8)")
    whole = path.read_bytes()
    for length in (0, 7, 8, 100, 4096, 5000, len(whole) // 2):
        path.write_bytes(whole[:length])
        try:
            assert from_box(path).time is None or length > 4096
        except ValueError:
            assert length < 4096


@pytest.mark.parametrize("at", [0, 16, 4096, 8192, 40_000])
def test_a_box_full_of_ones_is_refused_or_read(tmp_path: Path, at: int):
    path, _ = die(tmp_path / "boxes", "ctypes.string_at(8)")
    content = bytearray(path.read_bytes())
    content[at : at + 2048] = b"\xff" * 2048
    path.write_bytes(content)
    try:
        from_box(path)
    except ValueError:
        assert at == 0
