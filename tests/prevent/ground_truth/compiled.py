"""Libraries that the tests compile, each with what it needs, and how it really fares on emulated CPUs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).parent / "libraries"
# qemu's names, and archspec's.
CPUS = {
    "Conroe": "core2",
    "Nehalem": "nehalem",
    "SandyBridge": "sandybridge",
    "Haswell": "haswell",
    "Haswell,-fma": "haswell,-fma",
}
ILLEGAL_INSTRUCTION = 4


class Compiled(NamedTuple):
    name: str
    sources: tuple[str, ...]
    flags: tuple[str, ...] = ("-O2",)


LIBRARIES = (
    Compiled("plain", ("plain.c",), ("-O3",)),
    Compiled("throughout-v2", ("throughout.c",), ("-O3", "-march=x86-64-v2")),
    Compiled("throughout-v3", ("throughout.c",), ("-O3", "-march=x86-64-v3")),
    Compiled("throughout-v4", ("throughout.c",), ("-O3", "-march=x86-64-v4")),
    Compiled("throughout-stripped", ("throughout.c",), ("-O3", "-march=haswell", "-s")),
    Compiled("guarded", ("guarded.c",)),
    Compiled("guarded-stripped", ("guarded.c",), ("-O2", "-s")),
    Compiled("guarded-pointer", ("guarded_pointer.c",)),
    Compiled("guarded-table", ("guarded_table.c",)),
    Compiled("chosen-by-loader", ("chosen_by_loader.c",)),
    Compiled("clones", ("clones.c",), ("-O3",)),
    Compiled("bad-resolver", ("bad_resolver.c",)),
    Compiled("unguarded", ("unguarded.c",)),
    Compiled("unguarded-stripped", ("unguarded.c",), ("-O2", "-s")),
    Compiled("unguarded-table", ("unguarded_table.c",)),
    Compiled("constructor", ("constructor.c",)),
    Compiled("sse41", ("sse41.c",)),
    Compiled("popcnt", ("popcnt.c",)),
    Compiled("fma-alone", ("fma_alone.c",)),
    Compiled("dead-code", ("dead_code.c",)),
    *(Compiled(f"asks-for-less-{how}", ("asks_for_less.c",), ("-O2", f"-DHOW={how}")) for how in range(1, 8)),
    Compiled("asks-for-less-stripped", ("asks_for_less.c",), ("-O2", "-DHOW=1", "-s")),
    Compiled("asks-for-enough", ("asks_for_less.c",), ("-O2", "-DHOW=0")),
    Compiled("merged", ("merged_wide.cpp", "merged.cpp"), ("-O3",)),
)


def compile_library(library: Compiled, folder: Path) -> Path:
    """Raises CalledProcessError where the compiler cannot."""
    objects = []
    for source in library.sources:
        # Only the wide half of a merged pair is compiled for AVX2, as a project's kernels are.
        extra = ("-mavx2",) if source == "merged_wide.cpp" else ()
        made = folder / f"{library.name}-{source}.o"
        compiler = "g++" if source.endswith(".cpp") else "gcc"
        _run(compiler, *library.flags, *extra, "-fPIC", "-w", "-c", str(SOURCES / source), "-o", str(made))
        objects.append(str(made))
    out = folder / f"lib{library.name}.so"
    strip = ("-s",) if "-s" in library.flags else ()
    linker = "g++" if library.sources[0].endswith(".cpp") else "gcc"
    _run(linker, "-shared", *strip, *objects, "-o", str(out))
    return out


def compile_loader(folder: Path) -> Path:
    out = folder / "load"
    _run("gcc", "-O1", str(SOURCES / "load.c"), "-o", str(out), "-ldl")
    return out


def dies(loader: Path, library: Path, cpu: str) -> bool:
    """Whether loading it and calling work() ends with SIGILL on this CPU."""
    done = subprocess.run(
        ["qemu-x86_64", "-cpu", cpu, str(loader), str(library)], capture_output=True, timeout=60, check=False
    )
    if done.returncode in {-ILLEGAL_INSTRUCTION, 128 + ILLEGAL_INSTRUCTION}:
        return True
    assert done.returncode == 0, (library.name, cpu, done)
    return False


def missing_tools() -> str | None:
    absent = [tool for tool in ("gcc", "g++", "qemu-x86_64") if shutil.which(tool) is None]
    return f"needs {', '.join(absent)}" if absent else None


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
