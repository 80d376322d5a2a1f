"""`lastwords doctor` as its users meet it, here and in a place that is set up badly."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from lastwords.commands import _doctor_page, _preflight
from lastwords.commands._group import group
from lastwords.prevent import doctor, interpreter, needs, scan
from lastwords.prevent.checks import Check, all_checks, libraries
from lastwords.prevent.doctor import Report
from lastwords.prevent.finding import Finding, Fix, fine
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient
from lastwords.prevent.scan_model import Library
from lastwords.prevent.sizing import Recommendation
from tests.prevent.container import Container, container, small_environment
from tests.watch.running import python

PATIENCE = 300
"""Seconds. The doctor itself gives a job two minutes, and half a minute more to end."""


def lastwords(home: Path, *words: str):
    result = CliRunner().invoke(group, ["--home", str(home), *words], prog_name="lastwords")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


class TestTheCommand:
    def test_quick_and_json(self, tmp_path):
        result = lastwords(tmp_path, "doctor", "--quick", "--json")
        found = json.loads(result.stdout)
        assert found["schema"] == "lastwords-doctor/1"
        assert found["would_kill"] is (result.exit_code == 1)
        assert found["job"]["source"] == "supposed"
        assert {finding["check"] for finding in found["findings"]} >= {
            "shared-memory",
            "open-files",
            "memory",
            "disk",
        }

    def test_a_batch_that_no_machine_holds_ends_with_1(self, tmp_path):
        result = lastwords(tmp_path, "doctor", "--quick", "--workers", "64", "--batch", "900TB")
        assert result.exit_code == 1
        assert "✗ /dev/shm has" in result.stdout
        assert "64 workers × 2 batches ahead" in result.stdout

    def test_no_workers_need_little(self, tmp_path):
        found = json.loads(lastwords(tmp_path, "doctor", "--quick", "--workers", "0", "--json").stdout)
        (shm,) = (one for one in found["findings"] if one["check"] == "shared-memory")
        assert shm["severity"] == "fine"

    @pytest.mark.parametrize(
        "words",
        [
            ("--batch", "lots"),
            ("--batch", "-1"),
            ("--workers", "-1"),
            ("--workers", "many"),
            ("--batches", "0", "--", "true"),
            ("--seconds", "0", "--", "true"),
            ("--seconds", "nan", "--", "true"),
            ("--workers", "2", "--", "true"),
            ("--", "no-such-program-here"),
            ("--", ""),
            ("--", "/"),
        ],
    )
    def test_wrong_use_is_one_line_and_2(self, tmp_path, words):
        result = lastwords(tmp_path, "doctor", "--quick", *words)
        assert result.exit_code == 2, result.output
        assert "Traceback" not in result.output
        assert result.stdout == ""

    def test_help_says_that_the_job_really_starts(self, tmp_path):
        text = " ".join(lastwords(tmp_path, "doctor", "--help").stdout.split())
        assert "the job really starts" in text
        assert "SIGINT" in text

    def test_a_job_that_fails_is_shown_with_its_cause(self, tmp_path):
        words = python("raise MemoryError('no room for the table')")
        result = lastwords(tmp_path / "home", "doctor", "--quick", "--", *words)
        assert result.exit_code == 1
        assert "✗ the job ended with exit code 1 in its first batches" in result.stdout
        assert "no room for the table" in result.stdout

    def test_a_job_that_nobody_can_count_is_no_bad_news(self, tmp_path):
        words = python("import time; time.sleep(1000)")
        result = lastwords(tmp_path / "home", "doctor", "--quick", "--seconds", "2", "--", *words)
        assert result.exit_code == 0
        assert "could not be counted" in " ".join(result.stdout.split())


class TestThePage:
    REPORT = Report(
        host="node-7",
        job=needs.supposed(None, workers=2),
        findings=(
            Finding(
                severity="kills",
                says="/dev/shm has 64 MiB",
                measured=("/dev/shm: 64 MiB free (statvfs)",),
                fixes=(Fix("give it more", "docker run --shm-size=1g …"),),
                check="shared-memory",
            ),
            Finding(severity="kills", says="the job ended with exit code 1", check="first-batches"),
            Finding(severity="slow", says="\x1b[31mred\x07", check="x"),
            fine("20000 open files allowed"),
        ),
        recommended=Recommendation(
            num_workers=4,
            prefetch_factor=2,
            batches_in_flight=9,
            memory_limit=2 * 10**9,
            shared_memory=10**8,
            arithmetic=("an item takes 5.00 ms of CPU",),
        ),
        not_checked=("broken: OSError: x",),
    )

    def test_worst_first_with_proof_and_fix(self):
        page = _doctor_page.render(
            self.REPORT, ["out-of-memory 97%: The kernel killed it."], width=80, colour=False
        )
        lines = page.splitlines()
        assert lines[0] == "node-7: 2 would kill the job, 1 slow it down"
        at = lines.index("✗ /dev/shm has 64 MiB")
        assert lines[at + 1 : at + 4] == [
            "    /dev/shm: 64 MiB free (statvfs)",
            "  → give it more",
            "      docker run --shm-size=1g …",
        ]
        assert "    out-of-memory 97%: The kernel killed it." in lines
        assert "    num_workers=4  prefetch_factor=2  batches in flight 9" in lines
        assert "    20000 open files allowed" in lines
        assert "    broken: OSError: x" in lines

    def test_fits_and_is_safe(self):
        page = _doctor_page.render(self.REPORT, [], width=60, colour=False)
        assert max(map(len, page.splitlines())) <= 60
        assert "\x1b" not in page
        assert "\x1b[" in _doctor_page.render(self.REPORT, [], width=60, colour=True)


class TestTheInterpreter:
    def test_one_that_dies(self, tmp_path):
        script = tmp_path / "python"
        script.write_text("#!/bin/sh\necho loading; echo 'no CUDA today' >&2; kill -ILL $$\n")
        script.chmod(0o755)
        assert interpreter.ask(str(script)).died == "signal 4: no CUDA today"

    def test_one_that_is_none(self, tmp_path):
        assert interpreter.ask(str(tmp_path / "none")).died == "No such file or directory"
        assert "exit code 0" in (interpreter.ask("/bin/true").died or "")

    def test_one_that_never_answers_is_ended_with_its_children(self, tmp_path):
        script = tmp_path / "python"
        script.write_text(f"#!/bin/sh\nsleep 1000 & echo $! > {tmp_path}/pid; wait\n")
        script.chmod(0o755)
        assert interpreter.ask(str(script), patience=1.0).died == "no answer within 1 s"
        child = int((tmp_path / "pid").read_text())
        until = time.monotonic() + 30
        while _is_alive(child) and time.monotonic() < until:
            time.sleep(0.01)  # it was killed, and is nobody's child here: nothing tells when that is done
        assert not _is_alive(child)

    def test_garbage_before_the_answer_and_instead_of_it(self):
        good = b'noise\n{"python": "3.12.1", "imports": {"torch": {"version": "2"}}}\n'
        assert interpreter.read(good, 0, "", "python").python == "3.12.1"
        for bad in (b"", b"{", b"[]", b'{"python": 3}'):
            assert interpreter.read(bad, 1, "last line", "python").died == "exit code 1: last line"


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class TestPreflight:
    def test_a_good_machine_starts_the_job(self, tmp_path):
        executable, environment = small_environment(tmp_path / "venv")
        words = [
            executable,
            "-m",
            "lastwords",
            "--home",
            str(tmp_path),
            "run",
            "--preflight",
            "--",
            "echo",
            "started",
        ]
        result = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
        assert (result.returncode, result.stdout) == (0, "started\n"), result.stderr

    def test_a_bad_one_does_not(self, tmp_path, monkeypatch, capsys):
        bad = Finding(severity="kills", says="the disk is full", fixes=(Fix("look", "du"),))
        monkeypatch.setattr(
            doctor, "_look", lambda check, _patient, _job: [bad] if check.id == "disk" else []
        )
        assert not _preflight.is_fit(str(tmp_path))
        said = capsys.readouterr().err.splitlines()
        assert said[0] == "lastwords: ✗ the disk is full · look: du"
        assert "the job was not started" in said[1]

    @pytest.mark.parametrize(("status", "starts"), [(0, True), (1, False), (-11, True), (3, True)])
    def test_only_bad_news_keeps_a_job_from_starting(self, tmp_path, monkeypatch, status, starts):
        ended: subprocess.CompletedProcess[bytes] = subprocess.CompletedProcess([], status)
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
        assert _preflight.may_start(str(tmp_path)) is starts

    def test_a_job_that_may_not_start_is_1(self, tmp_path, monkeypatch):
        monkeypatch.setattr(_preflight, "may_start", lambda home: False)
        result = lastwords(tmp_path, "run", "--preflight", "--", "touch", str(tmp_path / "started"))
        assert result.exit_code == 1
        assert not (tmp_path / "started").exists()


JOB = """
import sys, torch
from torch.utils.data import DataLoader, Dataset

class Pictures(Dataset):
    def __init__(self, side, weight):
        self.side, self.weight = side, weight
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        if self.weight and not hasattr(self, "table"):
            self.table = torch.ones(self.weight)
        return torch.zeros(3, self.side, self.side), index

if __name__ == "__main__":
    side, weight, keeps = map(int, sys.argv[1:])
    kept = []
    for batch in DataLoader(Pictures(side, weight), batch_size=16, num_workers=4):
        if keeps:
            kept.append(batch)
"""
JOBS = {
    "shared-memory": ("512", "0", "0"),
    "memory": ("8", "75000000", "0"),
    "open-files": ("8", "0", "1"),
}


@pytest.mark.heavy
@pytest.mark.slow
@pytest.mark.root
@pytest.mark.timeout(400)
class TestInABadContainer:
    """64 MB of shared memory, 256 descriptors, 1 GB of memory: all three are named before a DataLoader dies of them."""

    @pytest.fixture
    def place(self):
        with container(memory=1 << 30, descriptors=256, shm="64m") as found:
            yield found

    @pytest.fixture
    def job(self, tmp_path) -> str:
        path = tmp_path / "job.py"
        path.write_text(textwrap.dedent(JOB))
        return str(path)

    def doctor(self, place: Container, home: Path, *words: str) -> tuple[int, dict[str, str], dict]:
        executable, environment = small_environment(home / "venv")
        command = [executable, "-m", "lastwords", "--home", str(home), "doctor", "--json", *words]
        result = place.run(command, env=environment, timeout=PATIENCE)
        assert result.returncode in (0, 1), result.stderr
        found = json.loads(result.stdout)
        return result.returncode, {one["check"]: one["severity"] for one in found["findings"]}, found

    def test_all_three_are_named_before_there_is_a_job(self, place, tmp_path):
        status, severities, found = self.doctor(place, tmp_path)
        assert status == 1
        assert severities["shared-memory"] == "kills"
        assert severities["memory"] in ("kills", "risk")
        assert severities["open-files"] in ("kills", "risk")
        says = {one["check"]: one["says"] for one in found["findings"]}
        assert "/dev/shm has 64 MiB" in says["shared-memory"]
        assert "the memory limit here is 1 GiB" in says["memory"]
        assert "may open 256 files" in says["open-files"]
        assert all(one["fixes"] for one in found["findings"] if one["severity"] in ("kills", "risk"))

    @pytest.mark.parametrize("check", JOBS)
    def test_the_one_that_kills_this_job_is_named_by_its_first_batches(self, place, tmp_path, job, check):
        words = [sys.executable, job, *JOBS[check]]
        status, severities, found = self.doctor(place, tmp_path, "--quick", "--batches", "40", "--", *words)
        assert status == 1
        assert severities[check] == "kills", found
        assert found["job"]["source"] == "measured"

    def test_the_loop_that_keeps_its_batches_does_die_of_it(self, place, job):
        """The trial stopped it before."""
        result = place.run([sys.executable, job, *JOBS["open-files"]], timeout=PATIENCE)
        assert result.returncode != 0
        assert "Too many open files" in result.stderr


class TestTheScan:
    """Reading gigabytes of libraries for the first time takes seconds: the rest of the page does not wait for it."""

    def patient(self, tmp_path: Path) -> Patient:
        return Patient(str(tmp_path), asks_interpreter=False)

    def test_it_goes_on_beside_the_other_checks(self, tmp_path, monkeypatch):
        others_are_done = threading.Event()

        def slow_scan(**_) -> list[Library]:
            assert others_are_done.wait(PATIENCE)
            return [Library(path="/x.so")]

        last = Check("zz-last", "", lambda _: others_are_done.set(), lambda *_: [])
        monkeypatch.setattr(scan, "scan", slow_scan)
        monkeypatch.setattr(doctor, "all_checks", lambda: sorted([libraries.CHECK, last], key=by_turn))
        report = doctor.examine(self.patient(tmp_path), Job(source="given", words="", workers=0), "host")
        assert [finding.says for finding in report.findings] == ["all 1 native libraries run on this CPU"]

    def test_it_is_begun_once(self, tmp_path, monkeypatch):
        calls = []
        monkeypatch.setattr(scan, "scan", lambda **_: calls.append(1) or [])
        patient = self.patient(tmp_path)
        assert patient.begin_scan() is patient.begin_scan()
        assert libraries.measure(patient) == ()
        assert calls == [1]

    def test_one_that_fails_is_a_note(self, tmp_path, monkeypatch):
        def broken(**_) -> list[Library]:
            raise OSError("no such disk")

        monkeypatch.setattr(scan, "scan", broken)
        monkeypatch.setattr(doctor, "all_checks", lambda: [libraries.CHECK])
        report = doctor.examine(self.patient(tmp_path), Job(source="given", words="", workers=0), "host")
        assert "libraries: OSError: no such disk" in report.not_checked

    def test_it_comes_last(self):
        assert all_checks()[-1].id == "libraries"


def by_turn(check: Check) -> tuple[bool, str]:
    return check.begin is not None, check.id
