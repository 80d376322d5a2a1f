"""What a library asks the loader for, against what readelf says of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lastwords
from lastwords.prevent import symbol_versions

LIBRARY = Path(lastwords.__file__).parent / "_native.abi3.so"


def by_readelf(path: Path, kind: str) -> tuple[int, ...]:
    said = subprocess.run(["readelf", "-VW", str(path)], capture_output=True, text=True, check=True).stdout
    said = said.partition("Version needs section")[2]
    found = re.findall(rf"Name: {kind}_([\d.]+)\b", said)
    return max((tuple(map(int, one.split("."))) for one in found), default=())


@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs binutils")
def test_as_readelf_reads_it():
    paths = [LIBRARY, *Path("/usr/lib").glob("*/libstdc++.so.6"), *Path("/usr/lib").glob("*/libm.so.6")]
    for path in paths:
        found = symbol_versions.needed_by(str(path))
        for kind in ("GLIBC", "GLIBCXX"):
            assert found.get(kind, ()) == by_readelf(path, kind), path
    assert symbol_versions.needed_by(str(LIBRARY))["GLIBC"] >= (2, 2, 5)


def test_a_library_from_the_future(tmp_path):
    """Real, but for the name of one version."""
    newest = symbol_versions.needed_by(str(LIBRARY))["GLIBC"]
    old = b"GLIBC_" + symbol_versions.words(newest).encode() + b"\0"
    new = b"GLIBC_9" + old[7:]
    (tmp_path / "x.so").write_bytes(LIBRARY.read_bytes().replace(old, new))
    assert symbol_versions.needed_by(str(tmp_path / "x.so"))["GLIBC"] == (9, *newest[1:])


def test_what_is_no_library(tmp_path):
    assert symbol_versions.needed_by(str(tmp_path)) == {}
    assert symbol_versions.needed_by(str(tmp_path / "none")) == {}
    (tmp_path / "x.so").write_bytes(b"\x7fELF\x02\x01" + b"\xff" * 200)
    assert symbol_versions.needed_by(str(tmp_path / "x.so")) == {}


@settings(max_examples=200)
@given(st.binary(min_size=1, max_size=64), st.floats(0, 1))
@example(b"\0\0\0\0\0\0\x80", 0.9045429974915054)  # a place that no file reaches
def test_damage_never_raises_and_never_hangs(tmp_path_factory, noise, where):
    path = tmp_path_factory.mktemp("elf") / "x.so"
    small = next(iter(sorted(Path("/usr/lib").glob("*/libutil.so.1")) or [LIBRARY]))
    data = bytearray(small.read_bytes()[: 1 << 18])
    at = int(where * len(data))
    data[at : at + len(noise)] = noise
    path.write_bytes(data)
    assert isinstance(symbol_versions.needed_by(str(path)), dict)


def test_libraries_are_found_and_counted(tmp_path):
    for name in ("a.so", "b.so.1.2", "c.cpython-311-x86_64-linux-gnu.so", "d.so.txt", "e.py"):
        (tmp_path / name).touch()
    found = sorted(Path(path).name for path in symbol_versions.libraries_in([str(tmp_path)]))
    assert found == ["a.so", "b.so.1.2", "c.cpython-311-x86_64-linux-gnu.so"]
    assert len(list(symbol_versions.libraries_in([str(tmp_path)], most=2))) == 2
    assert list(symbol_versions.libraries_in([str(tmp_path / "none")])) == []
