"""Packages from pip, run for real on emulated CPUs, and compared with what the scan says of their libraries."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from lastwords import _native
from lastwords.prevent.scan_model import Library
from tests.prevent.ground_truth.compiled import CPUS, ILLEGAL_INSTRUCTION, SOURCES

HERE = Path(__file__).parent
LISTS = json.loads((HERE / "workloads.json").read_text())
"""`tuned`: used to set the thresholds. `scored`: not looked at before they were set. Package → what it does."""
LONGEST_RUN = 600
"""Seconds. torch's import takes one minute under qemu on a quiet core."""
TELL_LIBRARIES = (
    "\nimport sys\nsys.stdout.write('\\nLOADED ' + '\\nLOADED '.join("
    "{line.split(None, 5)[5].strip() for line in open('/proc/self/maps') if '.so' in line}) + '\\n')"
)
_DIED = re.compile(r"^SIGILL at ([0-9a-f]+) in (.+)$", re.MULTILINE)
_LOADED = re.compile(r"^LOADED (.+)$", re.MULTILINE)


class Outcome(msgspec.Struct, frozen=True):
    package: str
    cpu: str
    end: str
    """ran, died, or why neither can be said."""
    library: str | None = None
    """Where it died."""
    instruction: str | None = None
    """The bytes it died of, in hexadecimal digits."""
    loaded: tuple[str, ...] = ()


def is_installed(package: str, folder: Path) -> bool:
    return (folder / f".{package}").exists()


def install(packages: Iterable[str], folder: Path) -> None:
    """Those that are not there yet, wheels alone. Raises CalledProcessError."""
    wanted = [name for name in packages if not is_installed(name, folder)]
    if not wanted:
        return
    folder.mkdir(parents=True, exist_ok=True)
    uv = Path(sys.executable).with_name("uv")
    tool = [str(uv), "pip"] if uv.exists() else [sys.executable, "-m", "pip"]
    python = ["--python", sys.executable] if uv.exists() else []
    environment = {
        name: value for name, value in os.environ.items() if name not in {"UV_CONSTRAINT", "PIP_CONSTRAINT"}
    }
    words = [*tool, "install", "-q", *python, "--only-binary", ":all:", "--target", str(folder), *wanted]
    subprocess.run(words, check=True, env=environment, capture_output=True)
    for name in wanted:
        (folder / f".{name}").touch()


def compile_teller(folder: Path) -> Path:
    out = folder / "where.so"
    words = ["gcc", "-shared", "-fPIC", "-O1", "-w", str(SOURCES / "where.c"), "-o", str(out), "-ldl"]
    subprocess.run(words, check=True, capture_output=True)
    return out


def run(package: str, workload: str, cpu: str, site: Path, teller: Path) -> Outcome:
    """Import and a little work on an emulated CPU."""
    emulator = ["qemu-x86_64", "-cpu", cpu, "-E", f"LD_PRELOAD={teller}"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(teller.parent), "PYTHONPATH": str(site)}
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(
            [*emulator, sys.executable, "-c", workload + TELL_LIBRARIES],
            capture_output=True, text=True, errors="replace", timeout=LONGEST_RUN, check=False, env=environment,
            cwd=teller.parent, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Outcome(package, cpu, "took too long")
    died = _DIED.search(done.stderr)
    if died:
        return Outcome(package, cpu, "died", _real(died[2]), died[1])
    if done.returncode in {-ILLEGAL_INSTRUCTION, 128 + ILLEGAL_INSTRUCTION}:
        return Outcome(package, cpu, "died")
    loaded = tuple(sorted({_real(name) for name in _LOADED.findall(done.stdout)}))
    said = done.stderr.strip().splitlines() or ["failed"]
    return Outcome(package, cpu, "ran" if done.returncode == 0 else said[-1][:200], loaded=loaded)


def _real(path: str) -> str:
    return os.path.realpath(path)


def mistakes(outcome: Outcome, said: dict[str, Library]) -> list[str]:
    """`said`: real path → what the scan says of it for the outcome's CPU."""
    if outcome.end == "ran":
        accused = [path for path in outcome.loaded if path in said and said[path].verdict == "will-crash"]
        return [f"{outcome.package} runs on {outcome.cpu}, and {path} was accused" for path in accused]
    judged = said.get(outcome.library or "") if outcome.end == "died" else None
    if judged is None:
        return []
    where = f"{outcome.package} dies on {outcome.cpu} in {outcome.library}"
    if judged.verdict == "ok":
        return [f"{where}, and that was called ok"]
    lacked = needs_of(outcome)
    if lacked and not lacked & set(judged.missing):
        return [f"{where} for lack of {', '.join(sorted(lacked))}, and {', '.join(judged.missing)} was named"]
    return []


def needs_of(outcome: Outcome) -> frozenset[str]:
    """The extensions of the instruction that killed it; empty where that is not known."""
    code = bytes.fromhex(outcome.instruction or "")
    return frozenset(_native.isa_instruction_needs(code))


def archspec_name(cpu: str) -> str:
    return CPUS[cpu]
