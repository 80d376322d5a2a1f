"""Whether every death is told truly, and what watching costs.

A thousand processes die in ten ways, each waited for by somebody else (`bench._mortals`): each must be found, with the
status and the item that were really its own, and its own waiter must have lost nothing to us.

Cost is the CPU of `lastwords run` itself while 64 workers of its job do nothing; the clock on the wall is the peer: a
ratio of 0.01 is one per cent of one core.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.result import Result
from lastwords.evidence import Evidence
from lastwords.evidence.store import Store

NAME = "watch"
ROOT = Path(__file__).resolve().parent.parent
WORKERS = 64
LIMIT = 0.01
DEATHS, QUICK_DEATHS = 1000, 200
MOST_GROWTH = 1.5
"""Of the watcher's memory, from a tenth of the deaths to all of them."""
PATIENCE = 60.0
"""With the explanation of one death."""

JOB = """
    import os, sys
    import lastwords

    ready, said = os.pipe()
    for number in range(int(sys.argv[1])):
        if os.fork() == 0:
            with lastwords.item("idle", index=number):
                os.write(said, b".")
                sys.stdin.buffer.raw.read(1)  # nothing comes before the end
            os._exit(0)
    for _ in range(int(sys.argv[1])):
        os.read(ready, 1)
    print("ready", flush=True)
    sys.stdin.buffer.raw.read(1)
"""


def run(quick: bool) -> list[Result]:
    seconds = 5.0 if quick else 20.0
    return [
        *mortality(QUICK_DEATHS if quick else DEATHS),
        measure(f"watching {WORKERS} idle workers", seconds),
        measure("the same with --hang-after 60", seconds, "--hang-after", "60"),
    ]


# Every death, told truly.


@dataclass(frozen=True)
class Account:
    """What became of the deaths in a ledger. Each entry is a line for whoever has to find out why."""

    total: int
    sources: Counter[str]
    """Who told the status, of those that are right."""
    lost: list[str]
    wrong: list[str]
    invented: list[str]
    stolen: list[str]
    """Ends that their own waiter did not see as they were."""

    @property
    def right(self) -> int:
        return self.sources.total()

    @property
    def faults(self) -> list[str]:
        return [*self.lost, *self.wrong, *self.invented, *self.stolen]


def account(home: Path, ledger: Path) -> Account:
    """Compares what was done with what was told, by pid: the item is one of the things that can be wrong."""
    entries = [json.loads(line) for line in ledger.read_text().splitlines()]
    found: dict[int, list[Evidence]] = {}
    for death in Store(home).all():
        found.setdefault(death.process.pid if death.process else 0, []).append(death)
    told = Account(len(entries), Counter(), [], [], [], [])
    for entry in entries:
        deaths = found.pop(entry["pid"], [])
        if entry["seen"] is not None and entry["seen"] != entry["end"]:
            told.stolen.append(f"its own waiter saw {entry['seen']}: {entry}")
        if not deaths:
            told.lost.append(f"not found: {entry}")
        elif len(deaths) > 1 or not _is_true(deaths[0], entry):
            told.wrong.append(f"told as {[(one.status, one.item) for one in deaths]}: {entry}")
        else:
            assert deaths[0].status is not None
            told.sources[deaths[0].status.source] += 1
    told.invented.extend(f"pid {pid} died of nothing: {deaths[0].status}" for pid, deaths in found.items())
    return told


def _is_true(death: Evidence, entry: dict[str, Any]) -> bool:
    status, item = death.status, death.item
    if status is None or item is None:
        return False
    end = -signal.Signals[status.signal] if status.signal else status.exit_code
    return (end, item.index, item.key) == (entry["end"], entry["item"], f"mortal-{entry['item']}")


def mortality(deaths: int) -> list[Result]:
    with tempfile.TemporaryDirectory() as place:
        home, ledger = Path(place) / "home", Path(place) / "ledger"
        ledger.touch()
        words = [sys.executable, "-m", "bench._mortals", str(ledger), str(deaths)]
        with watched(home, words, "--quiet", stderr=subprocess.DEVNULL) as watcher:
            wait_for_deaths(home, deaths // 10)
            early = resident(watcher.pid)
            assert watcher.stdout is not None
            assert watcher.stdout.readline() == b"done, 0 failed\n"
            wait_for_deaths(home, deaths)
            used, late, job = cpu_seconds(watcher.pid), resident(watcher.pid), job_cpu_seconds(watcher.pid)
        told = account(home, ledger)
    for fault in told.faults:
        print(fault, file=sys.stderr)
    sources = ", ".join(f"{count} by {source}" for source, count in told.sources.most_common())
    return [
        Result(
            name=f"mixed deaths with the true status and item ({sources})",
            ours=told.right - len(told.invented),
            peer=deaths,
            unit="deaths",
            limit=1.0,
            better="higher",
        ),
        Result(
            name="ends that their own waiters saw as they were",
            ours=told.total - len(told.stolen),
            peer=deaths,
            unit="deaths",
            limit=1.0,
            better="higher",
        ),
        Result(
            name="CPU of the watcher, each death (peer: the job's own)",
            ours=1000 * used / deaths,
            peer=1000 * job / deaths,
            unit="ms",
        ),
        Result(
            name="memory of the watcher at the end (peer: after a tenth)",
            ours=late / 1e6,
            peer=early / 1e6,
            unit="MB",
            limit=MOST_GROWTH,
        ),
    ]


def wait_for_deaths(home: Path, count: int) -> None:
    """Until so many are kept, or no more come: what is missing then is lost, and the account says so."""
    seen, until = -1, 0.0
    while seen < count and (time.monotonic() < until or seen < 0):
        now = len(os.listdir(home / "deaths")) if (home / "deaths").exists() else 0
        if now != seen:
            seen, until = now, time.monotonic() + PATIENCE
        time.sleep(0.05)


def resident(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in line)
    return int(line.split()[1]) << 10


def job_cpu_seconds(watcher: int) -> float:
    """Of the command below the watcher, with all its children that have ended; orphans are not in it."""
    child = Path(f"/proc/{watcher}/task/{watcher}/children").read_text().split()[0]
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


# What it costs.


@contextmanager
def watched(home: Path, job: list[str], *options: str, **popen: Any) -> Iterator[subprocess.Popen[bytes]]:
    """`lastwords run`, with pipes; the job ends when its standard input does."""
    command = [sys.executable, "-m", "lastwords", "--home", str(home), "run", *options, "--"]
    environment = {name: value for name, value in os.environ.items() if name != "LASTWORDS"}
    with subprocess.Popen(
        [*command, *job], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=ROOT, **popen
    ) as watcher:
        yield watcher
        watcher.communicate()


def measure(name: str, seconds: float, *options: str) -> Result:
    with tempfile.TemporaryDirectory() as home:
        job = [sys.executable, "-c", textwrap.dedent(JOB), str(WORKERS)]
        with watched(Path(home), job, *options) as watcher:
            assert watcher.stdout is not None
            watcher.stdout.readline()
            time.sleep(5.0)  # the last announcements are read, and everybody is known to be idle
            begun, used = time.monotonic(), cpu_seconds(watcher.pid)
            time.sleep(seconds)
            wall, cpu = time.monotonic() - begun, cpu_seconds(watcher.pid) - used
    return Result(name=name, ours=cpu * 1000, peer=wall * 1000, unit="ms", limit=LIMIT)


def cpu_seconds(pid: int) -> float:
    """Of all its threads, in nanoseconds exactly: /proc/PID/stat counts in hundredths of a second."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
