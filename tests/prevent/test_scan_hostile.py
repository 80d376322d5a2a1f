"""Files that are not what they say: a line each, and the rest goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lastwords import _native
from lastwords.prevent import cpus
from lastwords.prevent.scan import scan
from lastwords.prevent.scan_report import ONE

GOOD = Path(_native.__file__)


def problems_of(*paths: Path, home: Path) -> tuple[list[str], list[str]]:
    said: list[tuple[str, str]] = []
    found = scan(list(paths), home=home, problem=lambda path, line: said.append((path, line)))
    assert all("\n" not in line for _, line in said)
    return [os.path.basename(library.path) for library in found], [line for _, line in said]


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "not a library"),
        (b"\x7fELF", "truncated"),
        (b"\x7fELF\x02\x01\x01" + bytes(57), "truncated"),
        (b"MZ" + bytes(200), "Windows"),
        (b"\xcf\xfa\xed\xfe" + bytes(200), "macOS"),
        (b"\x7fELF\x01\x01\x01" + bytes(200), "32-bit"),
        (b"\x7fELF\x02\x02\x01" + bytes(200), "big-endian"),
        (b"/* GNU ld script */ INPUT(libc.so.6)", "no ELF header"),
        (b"\0" * 5000, "no ELF header"),
    ],
)
def test_what_is_no_library_gets_a_line_and_the_rest_goes_on(tmp_path: Path, content: bytes, word: str):
    (tmp_path / "bad.so").write_bytes(content)
    (tmp_path / "good.so").write_bytes(GOOD.read_bytes())
    found, lines = problems_of(tmp_path, home=tmp_path / "home")
    assert found == ["good.so"]
    assert len(lines) == 1 and word in lines[0]


@pytest.mark.parametrize("part", [0.02, 0.3, 0.6, 0.9, 0.99])
def test_a_truncated_library_is_told(tmp_path: Path, part: float):
    data = GOOD.read_bytes()
    (tmp_path / "cut.so").write_bytes(data[: int(len(data) * part)])
    _, lines = problems_of(tmp_path, home=tmp_path / "home")
    assert lines and "truncated" in lines[0]


def test_links_in_a_circle_and_to_nowhere(tmp_path: Path):
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "nowhere.so").symlink_to(tmp_path / "missing.so")
    (tmp_path / "round.so").symlink_to(tmp_path / "round.so")
    (tmp_path / "good.so").write_bytes(GOOD.read_bytes())
    (tmp_path / "same.so").symlink_to("good.so")
    found, lines = problems_of(tmp_path, home=tmp_path / "home")
    assert len(found) == 1 and not lines


def test_a_directory_that_may_not_be_read(tmp_path: Path):
    closed = tmp_path / "closed"
    closed.mkdir()
    (tmp_path / "good.so").write_bytes(GOOD.read_bytes())
    if os.geteuid() == 0:
        code = (
            "import os, sys; os.setgid(65534); os.setuid(65534)\n"
            "from lastwords.prevent.scan_files import libraries\n"
            "said = []; found = list(libraries([sys.argv[1]], lambda path, line: said.append(line)))\n"
            "print(len(found), said)"
        )
        tmp_path.chmod(0o755)
        closed.chmod(0)
        for parent in list(tmp_path.parents)[:2]:
            parent.chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            pytest.skip("nobody may not read this checkout")
        assert done.stdout.strip() == "1 ['Permission denied']"
        return
    closed.chmod(0)
    found, lines = problems_of(tmp_path, home=tmp_path / "home")
    closed.chmod(0o700)
    assert found == ["good.so"] and lines == ["Permission denied"]


def test_a_wheel_is_read_and_one_that_is_none_is_told(tmp_path: Path):
    wheel = tmp_path / "mine-1.2-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(GOOD, "mine/core.abi3.so")
        archive.writestr("mine/__init__.py", "")
    (library,) = scan([wheel], home=tmp_path / "home")
    assert (library.package, library.version) == ("mine", "1.2")
    assert library.path.endswith("mine/core.abi3.so")
    broken = tmp_path / "broken-1-py3-none-any.whl"
    broken.write_bytes(b"this is no zip")
    data = bytearray(wheel.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 64] = bytes(64)
    damaged = tmp_path / "damaged-1-py3-none-any.whl"
    damaged.write_bytes(data)
    found, lines = problems_of(broken, damaged, wheel, home=tmp_path / "home")
    assert found == ["core.abi3.so"]
    assert len(lines) == 2 and "not a wheel" in lines[0] and "unpacked" in lines[1]


def test_the_cache_answers_for_a_file_that_was_moved_and_not_for_one_that_changed(tmp_path: Path):
    first = tmp_path / "a" / "one.so"
    first.parent.mkdir()
    first.write_bytes(GOOD.read_bytes())
    (before,) = scan([first], home=tmp_path / "home")
    kept = tmp_path / "home" / "scan" / "libraries.msgpack"
    assert kept.stat().st_mode & 0o077 == 0
    stamp = kept.stat().st_mtime_ns
    (again,) = scan([first], home=tmp_path / "home")
    assert again == before and kept.stat().st_mtime_ns == stamp
    first.write_bytes(b"\x7fELF broken")
    assert not scan([first], home=tmp_path / "home")


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x93\x01\x80\x80", b"\x93\x63\x80\x80"])
def test_a_damaged_cache_is_no_cache(tmp_path: Path, content: bytes):
    kept = tmp_path / "home" / "scan" / "libraries.msgpack"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(content)
    assert len(scan([GOOD], home=tmp_path / "home")) == 1


SMALL = (Path(sys.prefix) / "lib").rglob("*.so")
SEED = min(
    (path.read_bytes() for path in list(SMALL)[:60] if path.stat().st_size > 8000),
    key=len,
    default=GOOD.read_bytes(),
)


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.integers(0, len(SEED) - 1), st.binary(min_size=1, max_size=16)), min_size=1, max_size=12
    ),
    st.integers(0, len(SEED)),
)
def test_a_mutated_library_never_breaks_the_scanner(changes: list[tuple[int, bytes]], length: int):
    data = bytearray(SEED)
    for place, content in changes:
        # Half of them into the headers, where offsets and sizes are.
        at = place % 1024 if place % 2 else place
        data[at : at + len(content)] = content
    scanned = ONE.decode(_native.isa_scan_bytes(bytes(data[: length or None])))
    assert (scanned.report is None) != (scanned.problem is None)
    assert "please report" not in (scanned.problem or "")


def test_names_of_cpus():
    assert "avx2" in cpus.named("haswell").features
    assert "avx" not in cpus.named("Nehalem").features
    assert "pni" in cpus.named("nehalem").features
    assert "fma" not in cpus.named("haswell,-fma").features
    assert cpus.named("sandy-bridge").features == cpus.named("SandyBridge").features
    assert cpus.named("neoverse_n1").architecture == "aarch64"
    with pytest.raises(cpus.UnknownCpu) as told:
        cpus.named("hasswell")
    assert "haswell" in told.value.near
