"""`lastwords run` under a real terminal: Ctrl-C, Ctrl-\\, Ctrl-Z and fg, and a terminal that is closed."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
from pathlib import Path

import pytest

from tests.watch.running import PATIENCE, clean_environment, deaths, python, run_words

SHELL = str(Path(__file__).with_name("tiny_shell.py"))
CTRL_C, CTRL_BACKSLASH, CTRL_Z = b"\x03", b"\x1c", b"\x1a"


class Terminal:
    """A shell with one job on a pseudo-terminal."""

    def __init__(self, words: list[str]) -> None:
        report, report_end = os.pipe()
        control_end, control = os.pipe()
        for descriptor in (report_end, control_end):
            os.set_inheritable(descriptor, True)
        self.shell, self.master = pty.fork()
        if self.shell == 0:
            command = [sys.executable, SHELL, str(report_end), str(control_end), *words]
            os.execve(sys.executable, command, clean_environment(NO_COLOR="1"))
        os.close(report_end)
        os.close(control_end)
        self._report = os.fdopen(report, "r")
        self._control = control
        self._screen = b""
        self.job = int(self.next_report().split()[1])

    def next_report(self) -> str:
        assert select.select([self._report], [], [], PATIENCE)[0], (
            f"nothing happened; screen: {self._screen!r}"
        )
        return self._report.readline().strip()

    def wait_for(self, text: str) -> None:
        while text.encode() not in self._screen:
            assert select.select([self.master], [], [], PATIENCE)[0], f"no {text!r} in {self._screen!r}"
            self._screen += os.read(self.master, 4096)

    def read_all(self) -> str:
        """To the end: the kernel says EIO when nobody has the terminal open any more."""
        try:
            while chunk := os.read(self.master, 4096):
                self._screen += chunk
        except OSError:
            pass
        return self._screen.decode()

    def press(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def foreground(self) -> None:
        os.write(self._control, b"f")
        assert self.next_report() == "continued"

    def close(self) -> None:
        os.close(self.master)
        os.close(self._control)
        self._report.close()
        os.waitpid(self.shell, 0)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


# Waits with the signals blocked: one that comes between two lines of it is not lost.
COUNTS = """
    import signal
    awaited = [signal.SIGINT, signal.SIGUSR1]
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    print("ready", flush=True)
    interrupts = 0
    while signal.sigwait(awaited) == signal.SIGINT:
        interrupts += 1
        print("seen", interrupts, flush=True)
    print("interrupts:", interrupts, flush=True)
"""


def test_ctrl_c_reaches_the_job_once(home: Path) -> None:
    terminal = Terminal(run_words(home, python(COUNTS)))
    terminal.wait_for("ready")
    terminal.press(CTRL_C)
    terminal.wait_for("seen 1")
    # Sent to run alone and read by it in order: a Ctrl-C that was passed on would be there before.
    os.kill(terminal.job, signal.SIGUSR1)
    terminal.wait_for("interrupts: 1")
    assert terminal.next_report() == "ended 0"
    terminal.close()


def test_ctrl_c_ends_python_as_without_us_and_is_no_death(home: Path) -> None:
    terminal = Terminal(run_words(home, python("import signal; print('ready', flush=True); signal.pause()")))
    terminal.wait_for("ready")
    terminal.press(CTRL_C)
    assert terminal.next_report() == f"ended {-signal.SIGINT}"
    screen = terminal.read_all()
    assert "KeyboardInterrupt" in screen
    assert "lastwords" not in screen
    assert deaths(home) == []
    terminal.close()


def test_ctrl_backslash_quits_and_is_no_death(home: Path) -> None:
    terminal = Terminal(run_words(home, python("import signal; print('ready', flush=True); signal.pause()")))
    terminal.wait_for("ready")
    terminal.press(CTRL_BACKSLASH)
    assert terminal.next_report() == f"ended {-signal.SIGQUIT}"
    assert "lastwords" not in terminal.read_all()
    assert deaths(home) == []
    terminal.close()


ASKS = """
    import os
    print("ready", os.getpid(), flush=True)
    word = input()
    print("heard", word, flush=True)
    raise SystemExit(7)
"""


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_ctrl_z_stops_both_and_fg_continues_both(home: Path) -> None:
    terminal = Terminal(run_words(home, python(ASKS)))
    terminal.wait_for("ready")
    terminal.press(CTRL_Z)
    assert terminal.next_report() == f"stopped {int(signal.SIGTSTP)}"
    children = Path(f"/proc/{terminal.job}/task/{terminal.job}/children").read_text().split()
    assert [state_of(pid) for pid in (terminal.job, *map(int, children))] == ["T", "T"]
    terminal.foreground()
    terminal.press(b"again\n")
    terminal.wait_for("heard again")
    assert terminal.next_report() == "ended 7"
    terminal.close()


def test_stopping_and_continuing_works_more_than_once(home: Path) -> None:
    terminal = Terminal(run_words(home, python(ASKS)))
    terminal.wait_for("ready")
    for _ in range(3):
        terminal.press(CTRL_Z)
        assert terminal.next_report() == f"stopped {int(signal.SIGTSTP)}"
        terminal.foreground()
    terminal.press(b"again\n")
    assert terminal.next_report() == "ended 7"
    terminal.close()


def test_continuing_run_alone_continues_the_job(home: Path) -> None:
    terminal = Terminal(run_words(home, python(ASKS)))
    terminal.wait_for("ready")
    os.kill(terminal.job, signal.SIGTSTP)  # To run alone: it stops the job, and then itself.
    assert terminal.next_report() == f"stopped {int(signal.SIGTSTP)}"
    os.kill(terminal.job, signal.SIGCONT)
    os.kill(terminal.job, signal.SIGTERM)  # Passed on in order: the job must be running to die of it.
    terminal.foreground()
    assert terminal.next_report() == f"ended {-signal.SIGTERM}"
    terminal.close()


def test_a_closed_terminal_ends_the_job_as_without_us(home: Path) -> None:
    """The shell dies of the hang-up, and the kernel then tells the job; nobody is left to write to."""
    terminal = Terminal(run_words(home, python("import signal; print('ready', flush=True); signal.pause()")))
    terminal.wait_for("ready\r\n")  # The whole line: the rest of it would find no terminal.
    run_pidfd = os.pidfd_open(terminal.job)
    (command,) = Path(f"/proc/{terminal.job}/task/{terminal.job}/children").read_text().split()
    command_pidfd = os.pidfd_open(int(command))
    terminal.close()
    for pidfd in (command_pidfd, run_pidfd):
        assert select.select([pidfd], [], [], PATIENCE)[0]
        os.close(pidfd)
    assert deaths(home) == []
