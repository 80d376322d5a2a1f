"""What other tools can read: minidumps out, cores in."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from zoo import keeper, native

pytestmark = pytest.mark.skipif(native.missing() is not None, reason=f"needs {native.missing()}")


def lastwords(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return keeper.start([*keeper.LASTWORDS, *words], keeper.environment(home))


@pytest.mark.skipif(shutil.which("lldb") is None, reason="needs lldb")
@pytest.mark.timeout(300)
def test_lldb_unwinds_an_exported_minidump_to_the_start(tmp_path):
    (death,) = keeper.run("null-dereference", "pool", tmp_path).deaths
    dump = tmp_path / "crash.dmp"
    done = lastwords(tmp_path, "show", death["death"]["id"], "--minidump", str(dump))
    assert (done.returncode, done.stdout) == (0, "")
    assert dump.stat().st_mode & 0o777 == 0o600
    words = ["lldb", "--batch", "--no-lldbinit", "-c", str(dump), "-o", "bt"]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False).stdout
    frames = [line for line in shown.splitlines() if "frame #" in line]
    assert "sum_values" in frames[0]
    assert "_start" in frames[-1]


def test_a_death_without_a_crash_has_no_minidump(tmp_path):
    (death,) = keeper.run("killed-from-outside", "plain", tmp_path).deaths
    dump = tmp_path / "crash.dmp"
    done = lastwords(tmp_path, "show", death["death"]["id"], "--minidump", str(dump))
    assert done.returncode == 2 and "nothing crashed in that process" in done.stderr
    assert not dump.exists()


def test_a_core_file_is_explained(tmp_path):
    pattern = Path("/proc/sys/kernel/core_pattern").read_text(encoding="ascii").strip()
    if pattern != "core":
        pytest.skip(f"core files go elsewhere: {pattern}")
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2);"
        "from zoo import native; native.load().null_dereference()"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=keeper.environment(), check=False)
    (core,) = tmp_path.glob("core*")
    done = lastwords(tmp_path, "explain", str(core), "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert told["causes"][0]["id"] == "null-pointer"
    assert told["native_stack"][0]["function"] == "sum_values"
    assert told["death"]["signal"] == "SIGSEGV"
    assert any("Python line" in one["what"] for one in told["missing"])


def test_a_torn_core_gives_one_clear_line(tmp_path):
    torn = tmp_path / "core"
    torn.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x04\x00" + bytes(20))
    done = lastwords(tmp_path, "explain", str(torn))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr
