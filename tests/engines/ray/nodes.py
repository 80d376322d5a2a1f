"""A Ray cluster of two nodes on this machine, each started by `ray start`, with an address and a home of its own.

127.0.0.2 is this machine, too. Where it may (root), the second node also has another host name.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.engines.processes import end_group, left_over
from tests.engines.victims import deaths

PATIENCE = 300.0
HEAD, SECOND = "127.0.0.1", "127.0.0.2"
RENAMED = ["unshare", "--uts", "sh", "-c", 'hostname second-node && exec "$@"', "sh"]


@dataclass
class Nodes:
    place: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def host_of_second(self) -> str:
        return "second-node" if can_rename() else os.uname().nodename

    def environment(self, name: str) -> dict[str, str]:
        own = {key: value for key, value in os.environ.items() if not key.startswith(("LASTWORDS", "RAY"))}
        home = self.place / name
        home.mkdir(exist_ok=True)
        return {
            **own,
            "LASTWORDS_HOME": str(home),
            "PYTHONPATH": str(Path(deaths.__file__).parent),
            "RAY_AUTH_MODE": "disabled",
            "RAY_gcs_server_port_wait_time_s": "300",  # Ray's own limits are those of an idle machine
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_failure_threshold": "10",
        }

    def start(self) -> str:
        """The address for drivers."""
        head = ["--head", "--port=0", f"--node-ip-address={HEAD}", "--include-dashboard=false"]
        self._start("head", [], *head)
        address = self._wait_for("head", r"--address='([\d.:]+)'")
        second = [f"--address={address}", f"--node-ip-address={SECOND}", '--resources={"second": 4}']
        self._start("second", RENAMED if can_rename() else [], *second)
        self._wait_for("second", r"Ray runtime (started)")
        return address

    def _start(self, name: str, before: list[str], *words: str) -> None:
        ray = str(Path(sys.executable).with_name("ray"))
        always = ("--num-cpus=2", "--object-store-memory=80000000", "--disable-usage-stats", "--block")
        with (self.place / f"{name}.log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(
                    [*before, ray, "start", *words, *always],
                    stdout=log,
                    stderr=log,
                    env=self.environment(name),
                    start_new_session=True,
                )
            )

    def _wait_for(self, name: str, words: str) -> str:
        log, until = self.place / f"{name}.log", time.monotonic() + PATIENCE
        while (found := re.search(words, log.read_text(errors="replace"))) is None:
            if time.monotonic() > until or any(one.poll() is not None for one in self.processes):
                raise RuntimeError(
                    f"the {name} node did not start:\n{log.read_text(errors='replace')[-4000:]}"
                )
            time.sleep(0.05)
        return found[1]

    def stop(self) -> None:
        """The second one first: it is of no use without the head."""
        for process in reversed(self.processes):
            end_group(process, patience=20)
        for pid in left_over(str(self.place)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def can_rename() -> bool:
    """A host name of one's own needs root, and a kernel that lets it."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False).returncode == 0
