"""`lastwords run` from outside: it must behave as if it were not there."""

from __future__ import annotations

import os
import re
import select
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.watch.running import (
    PATIENCE,
    clean_environment,
    deaths,
    leftovers,
    python,
    run,
    run_words,
    soon,
    start,
)

FATAL = [
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGKILL,
    signal.SIGUSR1,
    signal.SIGSEGV,
    signal.SIGUSR2,
    signal.SIGPIPE,
    signal.SIGALRM,
    signal.SIGTERM,
    signal.SIGXCPU,
    signal.SIGXFSZ,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGIO,
    signal.SIGSYS,
    signal.SIGRTMIN + 1,
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.mark.parametrize("code", [0, 1, 3, 77, 255])
def test_exit_code(home: Path, code: int) -> None:
    done = run(home, python(f"raise SystemExit({code})"))
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
    assert leftovers(home) == []


@pytest.mark.parametrize(
    "number", FATAL, ids=lambda number: signal.Signals(number).name if number < 32 else "RT"
)
def test_death_by_signal_is_ours_too(home: Path, number: int) -> None:
    """A shell command, because Python ignores some of them; the run leaves no core of its own."""
    done = run(home, ["sh", "-c", f"kill -{int(number)} $$"], "--quiet", cwd=home.parent)
    assert done.returncode == -number
    assert list(home.parent.glob("core*")) == []


def test_a_program_that_is_no_python_makes_no_noise(home: Path) -> None:
    done = run(home, ["sh", "-c", "echo out; echo err >&2; exit 2"])
    assert (done.returncode, done.stdout, done.stderr) == (2, "out\n", "err\n")


def test_the_two_dashes_may_be_left_out(home: Path) -> None:
    words = [sys.executable, "-m", "lastwords", "--home", str(home), "run", sys.executable, "-c", "print(1)"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=clean_environment())
    assert (done.returncode, done.stdout) == (0, "1\n")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ([], 2, "run needs a command"),
        (["no-such-command-here"], 127, "no-such-command-here: command not found"),
        (["./no/such/file"], 127, "./no/such/file: no such file"),
        ([""], 127, "command not found"),
        (["/"], 126, "/: is a directory"),
        (["./not-executable"], 126, "./not-executable: permission denied"),
        (["./bad-interpreter"], 127, "the interpreter in its first line does not exist"),
    ],
)
def test_a_command_that_cannot_be_run(
    home: Path, tmp_path: Path, words: list[str], code: int, text: str
) -> None:
    (tmp_path / "not-executable").write_text("#!/bin/sh\n")
    _script(tmp_path / "bad-interpreter", "#!/no/such/interpreter\n")
    done = run(home, words, cwd=tmp_path)
    assert done.returncode == code
    assert text in done.stderr
    assert done.stderr.count("\n") == 1
    assert leftovers(home) == []


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_a_script_without_a_first_line_is_a_shell_script(home: Path, tmp_path: Path) -> None:
    _script(tmp_path / "script", 'echo "$0 $1"; exit 4\n')
    done = run(home, ["./script", "word"], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (4, "./script word\n")


def test_pipes(home: Path) -> None:
    done = subprocess.run(
        run_words(home, ["cat"]),
        input="a\nb\n",
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment(),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "a\nb\n", "")


def test_a_reader_that_leaves_early_ends_the_command_by_sigpipe(home: Path) -> None:
    process = start(home, ["yes"])
    assert process.stdout is not None
    assert process.stdout.readline() == "y\n"
    process.stdout.close()
    assert process.wait(PATIENCE) == -signal.SIGPIPE
    process.communicate()


STATE = """
    import os, signal, sys
    mask = [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, [])]
    with open("/proc/self/status") as status:
        ignored = [line.split()[1] for line in status if line.startswith("SigIgn")]
    print(mask, ignored, os.getpgid(0), os.getsid(0), sorted(os.listdir("/proc/self/fd")), os.getcwd(), os.umask(0))
    print(sorted(name for name in os.environ if not name.startswith("LASTWORDS")))
    import resource
    print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE))
"""


def test_the_command_inherits_what_it_would_without_us(home: Path, tmp_path: Path) -> None:
    """Signals blocked and ignored, process group, session, descriptors, limits, environment."""
    readable, writable = os.pipe()

    def before() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup

    words = {"plain": python(STATE), "run": run_words(home, python(STATE))}
    told = {}
    for name, command in words.items():
        (tmp_path / name).mkdir()
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            stdin=subprocess.DEVNULL,
            env=clean_environment(),
            pass_fds=[readable, writable],
            preexec_fn=before,
        )
        told[name] = done.stdout
    os.close(readable)
    os.close(writable)
    assert _without_ours(told["run"]) == _without_glibcs(told["plain"])


def _without_ours(told: str) -> str:
    """The box of a recorded process and its text have two descriptors from 200 on."""
    return _without_glibcs(re.sub(r", '2\d\d'", "", told))


def _without_glibcs(told: str) -> str:
    """glibc's posix_spawn leaves its own two signals (32 and 33) ignored in whatever it starts: a make, a shell, us."""
    glibcs = 1 << 31 | 1 << 32

    def cleared(found: re.Match[str]) -> str:
        return f"['{int(found[1], 16) & ~glibcs:016x}']"

    return re.sub(r"\['([0-9a-f]{16})'\]", cleared, told)


ON_SIGNAL = """
    import signal, sys
    def told(number, frame):
        print(signal.Signals(number).name, flush=True)
        sys.exit(20)
    for name in ("SIGTERM", "SIGHUP", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGALRM"):
        signal.signal(getattr(signal, name), told)
    print("ready", flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGALRM"])
def test_a_signal_for_run_alone_reaches_the_command(home: Path, name: str) -> None:
    process = start(home, python(ON_SIGNAL))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(getattr(signal, name))
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (20, f"{name}\n", "")


# Waits with the signals blocked: one that comes between two lines of it is not lost.
COUNTS = """
    import os, signal
    awaited = [signal.SIGTERM, signal.SIGUSR1]
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    os.kill(0, signal.SIGTERM)
    count = 0
    while signal.sigwait(awaited) == signal.SIGTERM:
        count += 1
        print("ready", flush=True)
    print(count, flush=True)
"""


def test_a_signal_that_the_job_sends_to_its_own_group_is_not_doubled(home: Path) -> None:
    process = start(home, python(COUNTS), start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    # Read in order: had run passed the first on, the command would have had it before this one.
    process.send_signal(signal.SIGUSR1)
    out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, "1\n")


def test_an_alarm_that_was_set_before_reaches_the_command(home: Path) -> None:
    """The old way to limit a command's time: alarms live through exec, and then ring in us."""
    time = soon(3.0)  # for it to get ready
    process = start(home, python(ON_SIGNAL), preexec_fn=lambda: signal.setitimer(signal.ITIMER_REAL, time))
    out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (20, "ready\nSIGALRM\n")


def test_a_death_is_explained_and_kept(home: Path) -> None:
    done = run(home, python("import os; os.kill(os.getpid(), 9)"))
    assert done.returncode == -signal.SIGKILL
    assert "was killed by SIGKILL" in done.stderr
    assert f"1 death in this job · next: lastwords --home {home} show" in done.stderr
    (death,) = deaths(home)
    assert sorted(path.name for path in death.iterdir()) == ["box", "evidence.json"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in death.iterdir())
    assert leftovers(home) == []


def test_quiet_keeps_it_and_says_one_line(home: Path) -> None:
    done = run(home, python("import os; os.kill(os.getpid(), 9)"), "--quiet")
    assert done.stderr.count("\n") == 1
    assert len(deaths(home)) == 1


POOL = """
    import os, sys
    from concurrent.futures import ProcessPoolExecutor
    def work(number):
        if number == 5:
            exec(sys.argv[1])
        return number
    if __name__ == "__main__":
        with ProcessPoolExecutor(2) as pool:
            print(sum(f.result() for f in [pool.submit(work, n) for n in range(32)]))
"""


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        ("os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
        ("os.abort()", "died of SIGABRT"),
        ("os._exit(3)", "exit code 3"),
        ("os._exit(0)", "exit code 0"),
    ],
)
def test_a_pool_s_worker_is_one_death_and_the_pool_its_echo(
    home: Path, tmp_path: Path, ending: str, words: str
) -> None:
    script = tmp_path / "job.py"
    script.write_text("\n".join(line[4:] for line in POOL.splitlines()))
    done = run(home, [sys.executable, str(script), ending])
    assert done.returncode == 1
    assert words in done.stderr
    assert "item 5" in done.stderr
    assert "1 death in this job; the job then ended with BrokenProcessPool, exit status 1" in done.stderr
    assert len(deaths(home)) == 1
    assert leftovers(home) == []


def test_a_worker_s_exception_raised_again_is_the_job_s_death(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text("\n".join(line[4:] for line in POOL.splitlines()))
    done = run(home, [sys.executable, str(script), "raise ValueError('bad')"])
    assert done.returncode == 1
    assert "died of ValueError on item 5" in done.stderr
    assert len(deaths(home)) == 1


HEALTHY_POOL = """
import multiprocessing, sys
def square(number): return number * number
if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    with multiprocessing.Pool(4) as pool:      # leaving it is Pool.terminate: SIGTERM for every worker
        print(sum(pool.map(square, range(100))))
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_healthy_job_that_terminates_its_workers_is_left_in_peace(
    home: Path, tmp_path: Path, method: str
) -> None:
    script = tmp_path / "job.py"
    script.write_text(HEALTHY_POOL)
    done = run(home, [sys.executable, str(script), method])
    assert (done.returncode, done.stdout, done.stderr) == (0, "328350\n", "")
    assert leftovers(home) == []


ORPHAN = """
    import os, signal
    ready, hold = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            os.close(hold)
            os.read(ready, 1)                  # until our grandparent has let go of it, too
            os.kill(os.getpid(), signal.SIGSEGV)
        os._exit(0)
    os.wait()
    os.close(hold)
    os._exit(0)
"""


def test_an_orphan_s_crash_is_seen(home: Path) -> None:
    done = run(home, python(ORPHAN))
    assert done.returncode == 0
    assert "SIGSEGV" in done.stderr
    assert "1 death in this job" in done.stderr


DAEMON = """
    import os, sys
    ready, done = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.close(ready)
        for number in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        os.write(done, b"x")
        os.close(done)
        os.read(int(sys.argv[1]), 1)           # lives until the test lets it go
        os._exit(0)
    os.read(ready, 1)
"""


def test_a_daemon_that_the_job_leaves_behind_lives_on(home: Path) -> None:
    waits, lets_go = os.pipe()
    done = run(home, python(DAEMON, str(waits)), pass_fds=[waits])
    os.close(waits)
    assert done.returncode == 0
    assert "still running, and no longer watched: pid " in done.stderr
    pid = int(done.stderr.rpartition(" ")[2])
    os.kill(pid, 0)
    assert [path.suffix for path in leftovers(home)] == [".box"]
    pidfd = os.pidfd_open(pid)
    os.close(lets_go)
    assert select.select([pidfd], [], [], PATIENCE)[0]
    os.close(pidfd)


def test_an_unwritable_home_is_one_warning_and_the_job_runs_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(
        tmp_path / "file" / "home", python("import os; print('LASTWORDS' in os.environ); raise SystemExit(5)")
    )
    assert (done.returncode, done.stdout) == (5, "False\n")
    assert done.stderr.startswith("lastwords: not recording this job: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a tiny tmpfs")
@pytest.mark.parametrize("when", ["from the start", "before the death is kept"])
def test_a_full_home(tmp_path: Path, when: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    size = "64k" if when == "from the start" else "4m"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(home)], check=False)
    if mounted.returncode:
        pytest.skip("mount is not allowed here")
    try:
        fill = "import os\ntry:\n    open(os.environ['LASTWORDS'] + '/fill', 'wb', 0).write(b'x' * (8 << 20))\nexcept Exception: pass\n"
        done = run(home, [sys.executable, "-c", f"{fill}\nos.kill(os.getpid(), 9)"])
        assert done.returncode == -signal.SIGKILL
        if when == "from the start":
            assert "not recording this job" in done.stderr
            assert done.stderr.count("\n") == 1
        else:
            assert "SIGKILL" in done.stderr or "signal 9" in done.stderr
    finally:
        subprocess.run(["umount", str(home)], check=True)


def test_two_hundred_processes_at_once(home: Path) -> None:
    """Half of them fail; each is heard of, with its own exit code."""
    program = """
        import multiprocessing, os
        def work(gate, number):
            gate.wait()
            os._exit(3 if number % 20 == 0 else 0)
        if __name__ == "__main__":
            context = multiprocessing.get_context("fork")
            gate = context.Barrier(200)
            workers = [context.Process(target=work, args=(gate, n)) for n in range(200)]
            for worker in workers: worker.start()
            for worker in workers: worker.join()
            print(sorted({worker.exitcode for worker in workers}))
    """
    done = run(home, python(program), "--quiet")
    assert (done.returncode, done.stdout) == (0, "[0, 3]\n")
    assert "10 deaths in this job" in done.stderr
    assert len(deaths(home)) == 10


def test_a_run_in_a_run(home: Path, tmp_path: Path) -> None:
    inner = run_words(tmp_path / "inner", python("import os; os.kill(os.getpid(), 9)"))
    done = run(home, inner)
    assert done.returncode == -signal.SIGKILL
    assert len(deaths(tmp_path / "inner")) == 1


def test_explaining_that_fails_is_one_line_and_the_box_stays(home: Path) -> None:
    home.mkdir()
    (home / "deaths").write_text("")  # Nothing can be kept here.
    done = run(home, python("import os; os.kill(os.getpid(), 9)"))
    assert done.returncode == -signal.SIGKILL
    assert "explaining it failed" in done.stderr
    assert "is kept: " in done.stderr
    assert [path.suffix for path in leftovers(home)] == [".box"]


def test_many_deaths_are_kept_and_ten_are_shown(home: Path) -> None:
    program = """
        import os
        for _ in range(12):
            if os.fork() == 0:
                os.kill(os.getpid(), 9)
            os.wait()
    """
    done = run(home, python(program))
    assert done.returncode == 0
    assert done.stderr.count("✗") == 10
    assert done.stderr.count("more than 10 deaths in this job") == 1
    assert f"12 deaths in this job · next: lastwords --home {home} list" in done.stderr
    assert len(deaths(home)) == 12


def test_a_closed_standard_error_keeps_standard_output_clean(home: Path) -> None:
    words = run_words(home, python("import os; print('out', flush=True); os.kill(os.getpid(), 9)"))
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *words],
        stdout=subprocess.PIPE,
        env=clean_environment(),
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"out\n")
    assert len(deaths(home)) == 1
