"""Jobs that record themselves, with nobody beside them: what died is found by whoever asks next."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from lastwords.evidence import unwatched
from lastwords.evidence.store import Store


def run(home: Path, program: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "LASTWORDS"}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**environment, "LASTWORDS_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_job_that_enables_itself_is_explained_later(tmp_path):
    program = """
        import ctypes, lastwords
        lastwords.enable(role="trainer")
        with lastwords.item("shard-17", index=17):
            ctypes.string_at(0)
    """
    assert run(tmp_path, program).returncode == -11
    listed = subprocess.run(
        [sys.executable, "-m", "lastwords", "--home", str(tmp_path), "list", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    (told,) = json.loads(listed.stdout)
    assert told["causes"][0]["id"] == "null-pointer"
    assert (told["death"]["role"], told["death"]["item"]["index"]) == ("trainer", 17)
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_spawned_child_of_it_is_recorded_too(tmp_path):
    program = """
        import lastwords, subprocess, sys
        lastwords.enable()
        subprocess.run([sys.executable, "-c", "import ctypes; ctypes.string_at(0)"])
    """
    assert run(tmp_path, program).returncode == 0
    assert unwatched.take_up(tmp_path) == 1


def test_a_kill_in_the_middle_of_an_item_is_a_death_of_unknown_status(tmp_path):
    program = """
        import lastwords, os
        lastwords.enable()
        pid = os.fork()
        if pid == 0:
            with lastwords.item("five"):
                os.kill(os.getpid(), 9)
        os.wait()
    """
    assert run(tmp_path, program).returncode == 0
    assert unwatched.take_up(tmp_path) == 1
    (death,) = Store(tmp_path).all()
    assert death.item is not None and death.item.key == "five"


def test_orderly_ends_leave_nothing(tmp_path):
    program = """
        import lastwords, multiprocessing
        lastwords.enable()
        process = multiprocessing.get_context("fork").Process(target=print)
        process.start()
        process.join()
    """
    assert run(tmp_path, program).returncode == 0
    assert unwatched.take_up(tmp_path) == 0
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_living_job_is_left_alone(tmp_path):
    program = """
        import lastwords, subprocess, sys
        lastwords.enable()
        code = "import sys; from lastwords.evidence import unwatched; print(unwatched.take_up(sys.argv[1]))"
        with lastwords.item("busy"):
            subprocess.run([sys.executable, "-c", code, sys.argv[1]])
    """
    home = str(tmp_path)
    done = run(tmp_path, program.replace("sys.argv[1]]", f"{home!r}]"))
    assert done.stdout == "0\n"


def test_an_unwritable_home_runs_on_with_one_warning(tmp_path):
    (tmp_path / "runs").write_text("in the way")
    done = run(tmp_path, "import lastwords; print(lastwords.enable())")
    assert (done.returncode, done.stdout) == (0, "False\n")
    assert len(done.stderr.splitlines()) == 1 and "not recording" in done.stderr
