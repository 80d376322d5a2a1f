"""What is read from the machine: signals, statuses, the CPU, packages, source lines."""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest

from lastwords.evidence import cpu, packages, signals, source_code, status
from lastwords.evidence.frames import is_yours, yours
from lastwords.evidence.model import PythonFrame


class TestSignals:
    def test_names_and_numbers_are_those_of_this_system(self):
        for number in signal.Signals:
            if number < signal.SIGRTMIN:
                assert signals.name_of(number) in signal.Signals.__members__
                assert signal.Signals[signals.name_of(number)] == number

    @pytest.mark.parametrize("name", ["SIGSEGV", "sigsegv", "SEGV", "segv", " 11 ", "11"])
    def test_a_signal_is_found_however_it_is_written(self, name: str):
        found = signals.named(name)
        assert found is not None
        assert found.name == "SIGSEGV"

    @pytest.mark.parametrize("name", ["", "SIG", "SIGNOPE", "999", "-1", "²"])
    def test_there_is_no_such_signal(self, name: str):
        assert signals.named(name) is None

    @pytest.mark.parametrize(
        ("number", "code", "name"),
        [
            (11, 1, "SEGV_MAPERR"),
            (11, 2, "SEGV_ACCERR"),
            (11, 128, "SI_KERNEL"),
            (11, -6, "SI_TKILL"),
            (7, 2, "BUS_ADRERR"),
            (4, 2, "ILL_ILLOPN"),
            (8, 1, "FPE_INTDIV"),
            (31, 1, "SYS_SECCOMP"),
            (15, 0, "SI_USER"),
            (15, 77, None),
            (99, 1, None),
        ],
    )
    def test_codes(self, number: int, code: int, name: str | None):
        assert signals.code_name(number, code) == name

    def test_real_time_and_impossible_ones_have_a_name_too(self):
        assert signals.name_of(36) == "SIGRTMIN+2"
        assert signals.name_of(0) == "signal 0"


class TestStatus:
    @pytest.mark.parametrize(
        ("code", "name"),
        [(132, "SIGILL"), (137, "SIGKILL"), (139, "SIGSEGV"), (-11, "SIGSEGV"), (-9, "SIGKILL")],
    )
    def test_exit_codes_that_are_signals(self, code: int, name: str):
        found = status.from_exit_code(code, "exit code")
        assert (found.signal, found.exit_code) == (name, None)

    @pytest.mark.parametrize("code", [0, 1, 3, 127, 128, 255, 300, -300])
    def test_exit_codes_that_are_not(self, code: int):
        found = status.from_exit_code(code, "exit code")
        assert (found.signal, found.exit_code) == (None, code)

    def test_wait_statuses_are_those_of_the_kernel(self):
        pid = os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", "kill -KILL $$")
        killed = status.from_wait_status(os.waitpid(pid, 0)[1], "parent")
        assert (killed.signal, killed.exit_code) == ("SIGKILL", None)
        pid = os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", "exit 7")
        ended = status.from_wait_status(os.waitpid(pid, 0)[1], "parent")
        assert (ended.signal, ended.exit_code) == (None, 7)


class TestCpu:
    def test_a_recorded_machine(self, tmp_path: Path):
        file = tmp_path / "cpuinfo"
        file.write_text(
            "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: sse2 avx\n\nprocessor\t: 1\nflags\t: none\n"
        )
        found = cpu.this_host(file)
        assert found is not None
        assert (found.model, found.flags) == ("Some CPU", ("avx", "sse2"))

    def test_an_arm_machine_calls_them_features(self, tmp_path: Path):
        file = tmp_path / "cpuinfo"
        file.write_text("processor\t: 0\nFeatures\t: fp asimd\nCPU part\t: 0xd40\n")
        found = cpu.this_host(file)
        assert found is not None
        assert (found.model, found.flags) == (None, ("asimd", "fp"))

    def test_no_cpuinfo(self, tmp_path: Path):
        assert cpu.this_host(tmp_path / "none") is None

    def test_this_machine(self):
        found = cpu.this_host()
        assert found is not None
        assert found.flags


def distribution(site: Path, name: str, version: str, *files: str, metadata: str | None = None) -> None:
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in files))
    if metadata is not None:
        (folder / "METADATA").write_text(metadata)


class TestPackages:
    @pytest.fixture
    def site(self, tmp_path: Path) -> Path:
        site = tmp_path / "lib" / "site-packages"
        metadata = "Metadata-Version: 2.1\nName: faiss-cpu\nVersion: 1.9.0\n\nName: not this\n"
        distribution(
            site,
            "faiss_cpu",
            "1.9.0",
            "faiss/_swigfaiss.so",
            "faiss_cpu.libs/libgomp-1.so",
            metadata=metadata,
        )
        distribution(site, "other", "2.0", "other/a.so")
        return site

    @pytest.mark.parametrize("file", ["faiss/_swigfaiss.so", "faiss_cpu.libs/libgomp-1.so"])
    def test_the_owner_of_a_library(self, site: Path, file: str):
        assert packages.owner(str(site / file)) == ("faiss-cpu", "1.9.0")

    def test_without_metadata_the_folder_says_it(self, site: Path):
        assert packages.owner(str(site / "other/a.so")) == ("other", "2.0")

    @pytest.mark.parametrize("file", ["faiss/_swigfaiss", "nobody.so", "swigfaiss.so", "a.so"])
    def test_nobody_owns_what_is_in_no_record(self, site: Path, file: str):
        assert packages.owner(str(site / file)) is None

    @pytest.mark.parametrize(
        "path", ["/usr/lib/libc.so.6", "", "relative.so", "[vdso]", "/site-packages", "\0"]
    )
    def test_nobody_owns_what_is_elsewhere(self, path: str):
        assert packages.owner(path) is None

    def test_a_real_one(self):
        extension = find_spec("msgspec._core")
        assert extension is not None
        assert extension.origin is not None
        found = packages.owner(extension.origin)
        assert found is not None
        assert found.name == "msgspec"


class TestSourceCode:
    def frame(self, file: Path, line: int | None = 2) -> PythonFrame:
        return PythonFrame(file=str(file), line=line, function="f")

    def test_the_line_is_read(self, tmp_path: Path):
        file = tmp_path / "a.py"
        file.write_text("one\n   two  \n")
        assert source_code.with_code([self.frame(file)], None)[0].code == "two"

    def test_a_file_changed_since_is_left_alone(self, tmp_path: Path):
        file = tmp_path / "a.py"
        file.write_text("one\ntwo\n")
        started = file.stat().st_mtime - 10
        assert source_code.with_code([self.frame(file)], started)[0].code is None

    @pytest.mark.parametrize("line", [None, 0, 3, 10**9])
    def test_lines_that_are_not_there(self, tmp_path: Path, line: int | None):
        file = tmp_path / "a.py"
        file.write_text("one\ntwo\n")
        assert source_code.with_code([self.frame(file, line)], None)[0].code is None

    def test_a_pipe_does_not_hold_us_up(self, tmp_path: Path):
        os.mkfifo(tmp_path / "pipe.py")
        assert source_code.with_code([self.frame(tmp_path / "pipe.py")], None)[0].code is None

    def test_nothing_but_python_files_is_quoted(self, tmp_path: Path):
        (tmp_path / "secrets.txt").write_text("one\ntwo\n")
        assert source_code.with_code([self.frame(tmp_path / "secrets.txt")], None)[0].code is None

    def test_a_folder_may_be_called_like_a_file(self, tmp_path: Path):
        (tmp_path / "folder.py").mkdir()
        assert source_code.with_code([self.frame(tmp_path / "folder.py")], None)[0].code is None

    @pytest.mark.parametrize("name", ["", "\0", "/", "/nowhere/at/all.py", "<string>"])
    def test_names_that_are_no_files(self, name: str):
        frame = PythonFrame(file=name, line=1, function="f")
        assert source_code.with_code([frame], None)[0].code is None


@pytest.mark.parametrize(
    ("file", "is_mine"),
    [
        ("/srv/job/train.py", True),
        ("/usr/lib/python3.11/threading.py", False),
        ("/opt/venv/lib/python3.11/site-packages/torch/x.py", False),
        ("/usr/lib/python3/dist-packages/numpy/x.py", False),
        ("<frozen importlib._bootstrap>", False),
        (r"C:\Python311\Lib\multiprocessing\reduction.py", False),
        (r"D:\env\lib\site-packages\torch\x.py", False),
        (r"D:\jobs\lib\parts.py", True),
        ("multiprocessing/queues.py", False),
        ("torch/utils/data/dataloader.py", False),
        ("tools/train.py", True),
    ],
)
def test_your_code_is_told_from_the_rest(file: str, is_mine: bool):
    assert is_yours(PythonFrame(file=file, line=1, function="f")) is is_mine


def test_without_code_of_yours_the_innermost_frame_is_named():
    library = PythonFrame(file="/usr/lib/python3.11/a.py", line=1, function="f")
    assert yours([library]) == library
    assert yours([]) is None
