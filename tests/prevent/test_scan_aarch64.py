"""Libraries compiled for aarch64, run on emulated CPUs, and what the scan says of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lastwords.prevent import cpus
from lastwords.prevent.scan import read, verdicts
from lastwords.prevent.scan_model import Library
from tests.prevent.ground_truth.compiled import ILLEGAL_INSTRUCTION, SOURCES

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
SYSTEM = "/usr/aarch64-linux-gnu"
# qemu's names, and archspec's: ARMv8.0; with LSE and dot product; with SVE and without dot product.
CPUS = {"cortex-a72": "cortex_a72", "neoverse-n1": "neoverse_n1", "a64fx": "a64fx"}
LIBRARIES: dict[str, tuple[int, tuple[str, ...]]] = {
    "plain": (0, ("-march=armv8-a",)),
    "sve": (0, ("-march=armv8-a+sve",)),
    "sve2": (0, ("-march=armv8.5-a+sve2",)),
    "atomics": (1, ("-march=armv8.1-a",)),
    "atomics-asked": (1, ("-march=armv8-a", "-moutline-atomics")),
    "dotprod": (2, ("-march=armv8.2-a+dotprod",)),
    "sve-asked": (3, ("-march=armv8-a",)),
    "dotprod-asked": (4, ("-march=armv8.2-a",)),
}
# As /proc/cpuinfo has it: what the library cannot do without.
KILLS = {"sve": {"sve"}, "sve2": {"sve", "sve2"}, "atomics": {"atomics"}, "dotprod": {"asimddp"}}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which(COMPILER) and shutil.which(EMULATOR) and Path(SYSTEM, "lib").is_dir()),
        reason=f"needs {COMPILER} with its C library, and {EMULATOR}",
    ),
]


def compile_with(*words: str) -> None:
    subprocess.run([COMPILER, "-O3", "-w", *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("arm")
    compile_with(str(SOURCES / "load.c"), "-o", str(made / "load"), "-ldl")
    for name, (what, flags) in LIBRARIES.items():
        source, out = str(SOURCES / "arm.c"), str(made / f"lib{name}.so")
        compile_with(*flags, "-fPIC", "-shared", f"-DWHAT={what}", source, "-o", out)
    return made


def dies(folder: Path, name: str, cpu: str) -> bool:
    words = [EMULATOR, "-cpu", cpu, "-L", SYSTEM, str(folder / "load"), str(folder / f"lib{name}.so")]
    done = subprocess.run(words, capture_output=True, timeout=120, check=False)
    if done.returncode in {-ILLEGAL_INSTRUCTION, 128 + ILLEGAL_INSTRUCTION}:
        return True
    assert done.returncode == 0, done
    return False


@pytest.fixture(scope="module")
def said(folder: Path) -> dict[str, dict[str, Library]]:
    found = read([folder])
    judged = {cpu: verdicts(found, cpus.named(name).features, "aarch64") for cpu, name in CPUS.items()}
    return {
        cpu: {Path(one.path).stem.removeprefix("lib"): one for one in libraries}
        for cpu, libraries in judged.items()
    }


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("name", LIBRARIES)
def test_what_runs_is_not_accused_and_what_dies_is(folder: Path, said, name: str, cpu: str):
    verdict = said[cpu][name]
    if dies(folder, name, cpu):
        assert verdict.verdict != "ok"
        assert KILLS[name] & set(verdict.missing)
    else:
        assert verdict.verdict != "will-crash"


def test_somebody_dies_of_each_extension(folder: Path):
    """Else the emulator has all of them, and nothing was put to the test."""
    assert dies(folder, "atomics", "cortex-a72")
    assert dies(folder, "dotprod", "cortex-a72")
    assert dies(folder, "sve", "neoverse-n1")
    assert not dies(folder, "sve", "a64fx")


@pytest.mark.parametrize("name", ["plain", "atomics-asked", "sve-asked", "dotprod-asked"])
def test_what_asks_first_is_fine_everywhere(said, name: str):
    assert {said[cpu][name].verdict for cpu in CPUS} == {"ok"}
