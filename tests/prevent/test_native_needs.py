"""Our own native module on a CPU that it was not built for: a sentence, and never SIGILL."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lastwords
from lastwords import _native
from lastwords.prevent import features
from lastwords.prevent.require import usable_features
from lastwords.record import native_needs
from tests.watch.running import clean_environment

PACKAGE = Path(lastwords.__file__).parent
LIBRARY = PACKAGE / "_native.abi3.so"


def lacking() -> str:
    return next(name for name in ("fma4", "sve2", "amx_fp16") if name not in usable_features())


def rewritten(path: Path, text: str) -> Path:
    """A copy of our library whose section says something else."""
    data = LIBRARY.read_bytes()
    at, length = place(data)
    path.write_bytes(data[:at] + text.encode().ljust(length, b"\0") + data[at + length :])
    return path


def place(data: bytes) -> tuple[int, int]:
    said = subprocess.run(["readelf", "-SW", str(LIBRARY)], capture_output=True, text=True, check=True).stdout
    (row,) = (line.partition("]")[2].split() for line in said.splitlines() if " .lastwords.needs" in line)
    at, length = int(row[3], 16), int(row[4], 16)
    assert at + length <= len(data)
    return at, length


def test_the_section_says_what_the_module_says():
    assert native_needs.needs(str(LIBRARY)) == frozenset(_native.NEEDS.split())


def test_this_build_needs_no_more_than_this_cpu_has():
    assert native_needs.needs(str(LIBRARY)) <= usable_features()
    native_needs.check()


def test_every_name_is_a_feature():
    source = (PACKAGE.parent.parent / "crates" / "python" / "src" / "needs.rs").read_text()
    begin = source.index("= compiled_with! {")
    table = source[begin : source.index("};", begin)]
    names = [pair.split('"')[3] for pair in table.split(",") if "=>" in pair]
    assert len(names) > 30
    assert set(names) <= set(features.known())


@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs binutils")
class TestAnotherCpuSLibrary:
    @pytest.fixture
    def package(self, tmp_path) -> Path:
        """lastwords as it is, with a native module that needs what no CPU here has."""
        ignore = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(PACKAGE, tmp_path / "lastwords", ignore=ignore)
        rewritten(tmp_path / "lastwords" / "_native.abi3.so", f"{lacking()} sse2")
        return tmp_path

    def run(self, package: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        variables = clean_environment(PYTHONPATH=str(package), **environment)
        command = [sys.executable, *words]
        return subprocess.run(
            command, capture_output=True, text=True, env=variables, check=False, cwd=package
        )

    def test_needs_are_read(self, tmp_path):
        assert native_needs.needs(str(rewritten(tmp_path / "x.so", "fma4 tbm"))) == {"fma4", "tbm"}

    def test_the_command_line_says_so_in_one_line(self, package):
        result = self.run(package, "-m", "lastwords", "run", "--", "true")
        assert result.returncode == 2
        assert len(result.stderr.splitlines()) == 1
        assert f"is for a CPU with {lacking()}" in result.stderr

    def test_an_import_says_so(self, package):
        result = self.run(package, "-c", "import lastwords; lastwords.enable()")
        assert f"ImportError: this build of lastwords is for a CPU with {lacking()}" in result.stderr

    def test_a_recorded_job_runs_on(self, package, tmp_path):
        code = "import lastwords.record.bootstrap; print('working')"
        result = self.run(package, "-c", code, LASTWORDS=str(tmp_path))
        assert (result.returncode, result.stdout) == (0, "working\n")
        # The bootstrap of this environment and ours above: each has one line, and no traceback.
        assert set(result.stderr.splitlines()) == {result.stderr.splitlines()[0]}
        assert "not recording this process" in result.stderr

    def test_require_works_without_it(self, package):
        result = self.run(
            package, "-c", "import lastwords; lastwords.require(shm=0, open_files=1); print('fit')"
        )
        assert result.stdout == "fit\n"


def test_what_is_no_library(tmp_path):
    assert native_needs.needs(str(tmp_path / "none")) == frozenset()
    assert native_needs.needs(str(tmp_path)) == frozenset()
    for content in (b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 100, b"#!/bin/sh\n" * 20):
        (tmp_path / "x").write_bytes(content)
        assert native_needs.needs(str(tmp_path / "x")) == frozenset()
    assert not native_needs.needs(sys.executable)


@settings(max_examples=200)
@given(st.binary(max_size=400), st.integers(0, 4096))
@example(noise=b"\xff" * 8, at=40).via("its sections are beyond any file's end")
def test_damaged_libraries_never_raise(tmp_path_factory, noise, at):
    path = tmp_path_factory.mktemp("elf") / "x.so"
    with open(LIBRARY, "rb") as file:
        data = bytearray(file.read(8192))
    data[at : at + len(noise)] = noise
    path.write_bytes(data)
    assert isinstance(native_needs.needs(str(path)), frozenset)


def test_a_process_is_asked_once():
    code = (
        "import os; opened = []; real = os.open\n"
        "def spy(path, *rest, **more):\n    opened.append(str(path)); return real(path, *rest, **more)\n"
        "os.open = spy\n"
        "from lastwords import _native\nfrom lastwords import _native\n"
        "print(sum(path.endswith('_native.abi3.so') for path in opened))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "LASTWORDS"}
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert said.stdout == "1\n"
