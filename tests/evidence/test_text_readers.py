"""Readers hand over facts with their line; nothing in a log makes them fail or makes them slow."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lastwords.causes import all_causes
from lastwords.diagnosis import diagnose
from lastwords.evidence.text import from_log, from_text, unpacked
from lastwords.evidence.text.assemble import readers
from lastwords.evidence.text.excerpt import excerpt
from lastwords.evidence.text.unpacked import UnreadableLog
from tests.corpus import own

TEXTS = [case.log for case in own()]


def kinds(log: str) -> set[str]:
    return {mention.kind for mention in from_text(log).mentions or ()}


class TestFacts:
    def test_a_mention_says_where_it_stands(self):
        evidence = from_text(
            "all is well\nslurmstepd: error: Detected 1 oom_kill event in StepId=1.0.\n", name="job.log"
        )
        found = next(one for one in evidence.mentions or () if one.kind == "oom-kill")
        assert (found.source, found.line) == ("job.log, line 2", 2)
        assert "oom_kill event" in found.quote

    def test_the_kernels_line_about_a_fault_is_a_fault(self):
        line = "python3[81]: segfault at 18 ip 00007f0a sp 00007ffe error 6 in _ext.so[7f00+900]"
        fault = from_text(line).fault
        assert fault is not None
        assert (fault.address, fault.access, fault.code_name, fault.pc_in) == (
            0x18,
            "write",
            "SEGV_MAPERR",
            "_ext.so",
        )

    def test_a_refused_access_is_told_from_an_unmapped_one(self):
        fault = from_text("p[8]: segfault at 7f12 ip 7f11 sp 7ffe error 7 in a.so[7f00+9]").fault
        assert fault is not None
        assert fault.code_name == "SEGV_ACCERR"

    @pytest.mark.parametrize(
        ("line", "signal"),
        [
            ("Process finished with exit code 139 (interrupted by signal 11: SIGSEGV)", "SIGSEGV"),
            ("exit code: 132", "SIGILL"),
            ("failed (exitcode: -9) local_rank: 0", "SIGKILL"),
            ("exit code -1073741819 (0xC0000005)", "SIGSEGV"),
            ("run.sh: line 3:  812 Killed                  python a.py", "SIGKILL"),
            ("died with <Signals.SIGABRT: 6>", "SIGABRT"),
            ("[1]    12 floating point exception  python", "SIGFPE"),
        ],
    )
    def test_endings(self, line: str, signal: str):
        status = from_text(line).status
        assert status is not None
        assert status.signal == signal

    @pytest.mark.parametrize(
        "line",
        [
            "Sending process 12 closing signal SIGTERM",
            "This could be caused by a segmentation fault",
            "PCIe Bus Error: severity=Corrected",
            "skilled workers wanted",
            "Your CPU supports instructions that this TensorFlow binary was not compiled to use: AVX2 FMA",
            "job finished with exit code 0",
        ],
    )
    def test_words_that_end_nothing(self, line: str):
        assert from_text(line).status is None

    def test_a_traceback_behind_prefixes(self):
        log = "\n".join(
            f"[rank0]: {line}"
            for line in (
                "Traceback (most recent call last):",
                '  File "/srv/a.py", line 3, in main',
                "    work()",
                '  File "/srv/b.py", line 9, in work',
                "    raise KeyError(name)",
                "KeyError: 'name'",
            )
        )
        found = from_text(log).exception
        assert found is not None
        assert found.kind == "KeyError"
        assert [(frame.file, frame.line) for frame in found.frames] == [("/srv/b.py", 9), ("/srv/a.py", 3)]

    def test_faulthandlers_frames_are_a_stack(self):
        log = 'Fatal Python error: Segmentation fault\n\nCurrent thread 0x01 (most recent call first):\n  File "/a.py", line 4 in f\n'
        stack = from_text(log).python_stack
        assert stack is not None
        assert [(frame.file, frame.line, frame.function) for frame in stack.frames] == [("/a.py", 4, "f")]

    def test_a_guess_is_no_statement(self):
        assert "oom-kill" not in kinds("[ERROR] Worker (pid:8) was sent SIGKILL! Perhaps out of memory?")
        assert "memory-limit" not in kinds(
            "There are some potential root causes. (1) killed by SIGKILL by OOM killer"
        )

    @pytest.mark.parametrize(
        ("line", "is_one"),
        [
            ("OSError: curl: (28) Operation timed out", True),
            ("error: RPC failed; curl 56 recv error", True),
            ("curl 7.68.0 (x86_64-pc-linux-gnu)", False),
        ],
    )
    def test_errors_of_curl(self, line: str, is_one: bool):
        assert ("network-failure" in kinds(line)) is is_one

    def test_who_is_told_to_leave_does_not_leave_by_itself(self):
        told = '  File "/srv/a.py", line 3, in on_sigterm\n    sys.exit(1)\nSystemExit: 1\n'
        alone = '  File "/srv/a.py", line 3, in step\n    sys.exit(1)\nSystemExit: 1\n'
        failed = (
            'Traceback (most recent call last):\n  File "/srv/a.py", line 1, in f\n    g()\nValueError: no\n'
        )
        assert "worker-exited" not in kinds(told)
        assert "worker-exited" in kinds(alone)
        assert "worker-exited" not in kinds(failed + alone)

    @pytest.mark.parametrize(
        ("line", "is_newer"),
        [
            ("=> 0x7f40e92b5b93:\tvmovq  %r13,%xmm1", True),
            ("=> 0x7f40e92b5b93 <f+3>:\tmulx   %rax,%rbx,%rcx", True),
            ("=> 0x7f40e92b5b93 <verify+3>:\tmov    (%rax),%rbx", False),
        ],
    )
    def test_an_instruction_that_a_debugger_shows(self, line: str, is_newer: bool):
        assert ("newer-instruction" in kinds(line)) is is_newer

    def test_utf16_of_a_windows_shell(self):
        assert "gpu-oom" in {
            one.kind for one in from_text("CUDA out of memory.\n".encode("utf-16")).mentions or ()
        }

    def test_a_log_in_json(self):
        log = '{"log":"Traceback (most recent call last):\\n  File \\"a.py\\", line 1\\nMemoryError\\n","stream":"stderr"}'
        assert "allocation-failed" in kinds(log)

    def test_colours_and_progress_bars_are_taken_off(self):
        log = " 10%|#   | 1/10\r 20%|##  | 2/10\r\x1b[31mRuntimeError\x1b[0m: CUDA error: device-side assert triggered"
        assert "cuda-assert" in kinds(log)


class TestHostile:
    @settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
    @given(st.binary(max_size=4000))
    @example(b"\x1f\x8b")
    @example(b"\x28\xb5\x2f\xfd")
    def test_any_bytes(self, data: bytes):
        """What begins as a compressed file does may be refused, or read as far as it goes: both are said."""
        try:
            evidence = from_text(data)
        except UnreadableLog:
            assert any(map(data.startswith, unpacked.OTHERS))
            return
        assert diagnose(evidence).notes == ()
        assert evidence.notes == () or any(map(data.startswith, unpacked.KINDS))

    @settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
    @given(st.sampled_from(TEXTS), st.randoms(use_true_random=False))
    def test_mutated_logs(self, log: str, chance):
        text = list(log)
        for _ in range(chance.randint(1, 30)):
            at = chance.randrange(len(text) + 1)
            text[at : at + chance.randint(0, 6)] = chance.choice(
                ["", "\0", "\n", "9" * 40, "(", "'", "\x1b[", "é", "0x", "-"]
            )
        diagnosis = diagnose(from_text("".join(text)))
        assert diagnosis.notes == ()
        assert diagnosis.evidence.notes == ()
        assert len(diagnosis.verdicts) == len(all_causes())

    @settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(st.sampled_from(TEXTS), min_size=2, max_size=6))
    def test_mixed_logs(self, logs: list[str]):
        diagnosis = diagnose(from_text("\n".join(logs)))
        assert diagnosis.notes == ()

    @pytest.mark.parametrize(
        "piece", ["a", " ", "(", "SIG", "Error: ", 'File "', "signal ", "exit code ", "x9 ", "]: ", "\\n"]
    )
    def test_one_endless_line(self, piece: str):
        """No expression may take more than linear time over it."""
        begun = time.process_time()
        from_text(piece * (400_000 // len(piece)))
        assert time.process_time() - begun < 4

    def test_the_same_alarm_a_million_times(self):
        begun = time.process_time()
        evidence = from_text("free(): invalid pointer\n" * 400_000)
        assert time.process_time() - begun < 4
        assert len(evidence.mentions or ()) < 50

    def test_a_failing_reader_is_a_note(self, monkeypatch: pytest.MonkeyPatch):
        from lastwords.evidence.text import assemble
        from lastwords.evidence.text.reader import Reader

        def fails(_excerpt):
            raise ZeroDivisionError

        monkeypatch.setattr(assemble, "readers", lambda: (Reader("broken", read=fails), *readers()))
        evidence = from_text("CUDA out of memory.")
        assert any("broken" in note for note in evidence.notes)
        assert "gpu-oom" in {one.kind for one in evidence.mentions or ()}


def test_no_expression_repeats_a_repetition():
    """(a+)+ is how a line makes a reader hang."""
    nested = re.compile(r"[+*}]\)[+*{]")
    for reader in readers():
        for pattern in reader.patterns:
            assert pattern.regex is None or not nested.search(pattern.regex.pattern), pattern.regex.pattern


def test_a_log_file(tmp_path):
    (tmp_path / "job.log").write_bytes(b"x" * 10 + b"\nKilled process 12 (python) total-vm:1kB\n")
    evidence = from_log(tmp_path / "job.log")
    assert [one.source for one in evidence.mentions or () if one.kind == "oom-kill"] == ["job.log, line 2"]


def test_small_text_is_read_whole():
    lines = excerpt(b"one\n\ntwo\r\nthree").lines
    assert [(line.number, line.text) for line in lines] == [(1, "one"), (3, "two"), (4, "three")]
