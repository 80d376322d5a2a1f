"""A small job: 8 items, two workers, and one item that kills whoever works on it.

`lastwords demo` copies this file and runs the copy: the deaths are real.
"""

import ctypes
import mmap
import os
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

FMA4 = bytes.fromhex("c4e37168c230")  # vfmaddps xmm0,xmm1,xmm2,xmm3: no Intel CPU has it
AMX = bytes.fromhex("c4e27849c0")  # tilerelease: no AMD CPU has it, and some run FMA4 without saying so


def null_pointer() -> None:
    ctypes.string_at(0)


def missing_instruction() -> None:
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        instruction = AMX if "AuthenticAMD" in cpuinfo.read() else FMA4
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(instruction + b"\xc3")
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    ctypes.CFUNCTYPE(None)(start)()


def killed() -> None:
    subprocess.Popen(["sh", "-c", f"kill -KILL {os.getpid()}"])
    signal.pause()


def exception() -> None:
    width = -640
    raise ValueError(f"an image cannot be {width} pixels wide")


def work(item: int) -> int:
    if item == 5:
        globals()[sys.argv[1]]()
    return item * item


if __name__ == "__main__":
    with ProcessPoolExecutor(max_workers=2) as pool:
        print(sum(pool.map(work, range(8))))
