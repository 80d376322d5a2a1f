"""Our physical frames are gdb's, on the very same crash: the box that the handler wrote against the core that the
kernel wrote a moment later."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from zoo import native

CORE_PATTERN = Path("/proc/sys/kernel/core_pattern").read_text(encoding="ascii").strip()

pytestmark = [
    pytest.mark.skipif(native.missing() is not None, reason=f"needs {native.missing()}"),
    pytest.mark.skipif(shutil.which("gdb") is None, reason="needs gdb"),
    pytest.mark.skipif(CORE_PATTERN != "core", reason=f"core files go elsewhere: {CORE_PATTERN}"),
]

LEAVE_A_CORE = """
import ctypes, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
from zoo import native
extension = native.load()
"""
# An array on memory that is not there: whatever reads it crashes inside the library.
NOWHERE = """
import numpy
nowhere = numpy.ctypeslib.as_array((ctypes.c_float * 100_000).from_address(0x5A5A5A5A5000))
"""
TORCH = NOWHERE + "import torch; torch.set_num_threads(1); tensor = torch.from_numpy(nowhere)\n"
BROKEN_FRAMES = """
def victim():
    code = id(sys._getframe().f_code)
    names = [n for n in range(0, 400, 8) if ctypes.c_void_p.from_address(code + n).value == id(victim.__code__.co_filename)]
    ctypes.c_void_p.from_address(code + names[0]).value = 0x5A5A5A5A5A58
    extension.null_dereference()
victim()
"""
CRASHES = {
    "C extension": ("extension.null_dereference()", signal.SIGSEGV),
    "ud2": ("extension.trap()", signal.SIGILL),
    "FMA4": ("extension.illegal_instruction('fma4')", signal.SIGILL),
    "division": ("extension.integer_division()", signal.SIGFPE),
    "abort": ("extension.native_abort()", signal.SIGABRT),
    "non-canonical": ("extension.impossible_address()", signal.SIGSEGV),
    "jump to 0": ("ctypes.CFUNCTYPE(None)(0)()", signal.SIGSEGV),
    "double fault": (BROKEN_FRAMES, signal.SIGSEGV),
    "numpy": (NOWHERE + "nowhere.sum()", signal.SIGSEGV),
    "libtorch": (TORCH + "tensor.sum()", signal.SIGSEGV),
    "libtorch softmax": (TORCH + "tensor.softmax(0)", signal.SIGSEGV),
}
NEED_TORCH = {"numpy", "libtorch", "libtorch softmax"}

# gdb counts inlined functions as frames of their own, and guesses tail calls from debug information; neither has
# left anything on the stack. What a processor knows are the others.
PHYSICAL_FRAMES = """python
frame = gdb.newest_frame()
while frame is not None:
    if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
        print("FRAME", hex(frame.pc()))
    frame = frame.older()
end
"""


def gdb_frames(core: Path, directory: Path) -> list[int]:
    script = directory / "frames.gdb"
    script.write_text(PHYSICAL_FRAMES)
    words = ["gdb", "-nx", "-batch", "-x", str(script), sys.executable, str(core)]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False).stdout
    return [int(line.split()[1], 16) for line in shown.splitlines() if line.startswith("FRAME")]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.heavy] if name in NEED_TORCH else []) for name in CRASHES],
)
def test_the_frames_are_gdbs(record, tmp_path, name):
    program, number = CRASHES[name]
    died = record(LEAVE_A_CORE + program)
    assert died.returncode == -number, died.stderr
    (core,) = tmp_path.glob("core*")
    ours = [frame["address"] for frame in died.autopsy()["frames"] if not frame["inlined"]]
    theirs = gdb_frames(core, tmp_path)
    core.unlink()
    assert len(theirs) > 5
    assert [hex(address) for address in ours] == [hex(address) for address in theirs]


@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_a_dataloader_workers_core_has_the_true_fault(record, tmp_path):
    """torch's own handler ends in raise(): its cores have si_code -6, no address, and `raise` on top."""
    died = record(
        LEAVE_A_CORE
        + """
from torch.utils.data import DataLoader
class Rows:
    def __len__(self):
        return 8
    def __getitem__(self, index):
        if index == 5:
            extension.null_dereference()
        return index
if __name__ == "__main__":
    list(DataLoader(Rows(), num_workers=1))
"""
    )
    crash = died.crashed()["crash"]
    assert (crash["code"], crash["address"]) == (1, 8)
    assert "Unexpected segmentation fault encountered in worker" in died.stderr
    (core,) = tmp_path.glob("core*")
    words = [
        "gdb",
        "-nx",
        "-batch",
        "-ex",
        "p $_siginfo.si_code",
        "-ex",
        "p $_siginfo._sifields._sigfault.si_addr",
    ]
    shown = subprocess.run(
        [*words, sys.executable, str(core)], capture_output=True, text=True, check=False
    ).stdout
    core.unlink()
    assert "$1 = 1\n" in shown and "$2 = (void *) 0x8\n" in shown
