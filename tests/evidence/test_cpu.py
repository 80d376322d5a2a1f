"""The CPU as the process saw it: the host's flags, corrected by what CPUID said inside."""

from __future__ import annotations

from pathlib import Path

import msgspec

from lastwords.causes import cause_named
from lastwords.diagnosis import diagnose
from lastwords.evidence import box
from lastwords.evidence.cpu import WORDS, as_the_process_saw_it, this_host
from lastwords.evidence.model import Cpu
from tests.cases import evidence_of

AVX, FMA, AVX2 = 1 << 28, 1 << 12, 1 << 5
HOST = Cpu(source="/proc/cpuinfo", architecture="x86_64", model="A CPU", flags=("avx", "avx2", "fma", "ht"))


def words(ecx: int, ebx: int, xcr0: int = 7) -> tuple[int, ...]:
    return (13, ecx, 0, ebx, 0, 0, 0, xcr0)


def test_nothing_recorded_leaves_the_host():
    assert as_the_process_saw_it(HOST, None) is HOST
    assert as_the_process_saw_it(HOST, (1, 2)) is HOST


def test_what_an_emulator_hides_is_withheld():
    seen = as_the_process_saw_it(HOST, words(AVX, AVX2))
    assert seen is not None
    assert set(seen.flags) == {"avx", "avx2", "ht"}
    assert (seen.withheld, seen.not_enabled) == (("fma",), ())


def test_registers_that_the_system_did_not_enable():
    seen = as_the_process_saw_it(HOST, words(AVX | FMA, AVX2, xcr0=1))
    assert seen is not None
    assert seen.flags == ("ht",)
    assert set(seen.not_enabled) == {"avx", "avx2", "fma"}


def test_cpuid_alone_tells_of_another_host():
    seen = as_the_process_saw_it(None, words(AVX | FMA, 0))
    assert seen is not None and seen.model is None
    assert set(seen.flags) == {"avx", "fma"} and seen.withheld == ()


def test_a_recorded_process_agrees_with_its_host(tmp_path: Path):
    """In a box of this very machine nothing is withheld: the names and bits are those of /proc/cpuinfo."""
    import subprocess
    import sys

    code = "import lastwords, os; lastwords.enable(); os._exit(0)"
    environment = {"LASTWORDS_HOME": str(tmp_path), "PATH": "/usr/bin"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    (kept,) = tmp_path.rglob("*.box")
    identity = box.read(kept).identity
    host = this_host()
    assert identity is not None and host is not None
    if host.architecture != "x86_64":
        assert identity.cpuid is None
        return
    assert identity.cpuid is not None and len(identity.cpuid) == WORDS
    seen = as_the_process_saw_it(host, identity.cpuid)
    assert seen is not None and seen.withheld == () and set(seen.flags) == set(host.flags)


def test_the_remedy_knows_why_it_is_missing():
    evidence = evidence_of("illegal-instruction")
    assert evidence.cpu is not None
    hidden = msgspec.structs.replace(evidence, cpu=msgspec.structs.replace(evidence.cpu, withheld=("fma",)))
    best = diagnose(hidden).best
    assert best is not None and best.facts["withheld"] is True
    assert any("host-passthrough" in step.text for step in best.steps)
    off = msgspec.structs.replace(evidence, cpu=msgspec.structs.replace(evidence.cpu, not_enabled=("fma",)))
    cause = cause_named("isa-mismatch")
    assert cause is not None
    assert any("XCR0" in reason.text for reason in cause.judge(off))
