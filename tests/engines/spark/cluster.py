"""A real standalone cluster on loopback: a master and two workers, each with an address of its own.

127.0.0.2 and 127.0.0.3 are this machine, too, and Spark takes them for two hosts. The pip package has no start
scripts: `spark-class` starts what they would.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from lastwords.prevent.emit import need_of
from lastwords.prevent.emit.spark import Parts, parts
from lastwords.prevent.scan_model import Library
from tests.engines.processes import left_over

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""JVMs that live for a minute on two cores: what they save by compiling well they never get back."""
MASTER, ONE, OTHER = "127.0.0.1", "127.0.0.2", "127.0.0.3"
PATIENCE = 60.0
OLD_CPU = "Haswell,-fma"
FAISS = Library(
    path="faiss/_swigfaiss_avx2.so",
    package="faiss-cpu",
    version="1.9.0",
    architecture="x86_64",
    needs=("avx2", "fma"),
)


def missing() -> str | None:
    """What this machine lacks to run Spark, or None."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return "pyspark, which `make test` installs"
    if java_home() is None:
        return "Java 17 or newer: apt-get install openjdk-17-jre-headless"
    return None


def java_home() -> str | None:
    """Spark 4 runs on Java 17 and 21; the newest that is installed may be too new for it."""
    known = sorted(Path("/usr/lib/jvm").glob("java-17-*")) + sorted(Path("/usr/lib/jvm").glob("java-21-*"))
    for home in known:
        if (home / "bin" / "java").exists():
            return str(home)
    given = os.environ.get("JAVA_HOME")
    return given if given and Path(given, "bin", "java").exists() else None


PYTHON = """#!/bin/sh
# The Python of this cluster's executors: in a small memory group, and on the other host on an older CPU. That is slow,
# so only the jobs that ask for it have it, and `-c`, by which Spark's discovery script asks what the CPU can do.
[ -w "$LW_TEST_GROUP" ] && echo $$ > "$LW_TEST_GROUP"
[ "$1" = -c ] && LW_TEST_EMULATED={cpu}
if [ -n "$LW_TEST_EMULATED" ] && [ "$LW_TEST_HOST" = other ] && command -v qemu-x86_64 >/dev/null; then
    exec qemu-x86_64 -L {host} -cpu "$LW_TEST_EMULATED" {python} "$@"
fi
exec {python} "$@"
"""


@dataclass
class Cluster:
    place: Path
    group: str | None = None
    """Where an executor's Python enters a small memory group."""
    url: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def home(self) -> Path:
        """Where lastwords keeps the deaths of this cluster."""
        return self.place / "home"

    @property
    def scratch(self) -> Path:
        """What killed JVMs leave behind goes with the test's directory."""
        return self.place / "scratch"

    @property
    def placement(self) -> Parts:
        """What `lastwords scan --emit spark` says for faiss."""
        return parts(need_of([FAISS]))

    @property
    def python(self) -> Path:
        return self.place / "python.sh"

    def environment(self, **more: str) -> dict[str, str]:
        import pyspark

        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TERM") if name in os.environ}
        return {
            **kept,
            "JAVA_HOME": java_home() or "",
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": MASTER,
            "LASTWORDS_HOME": str(self.home),
            "LW_TEST_GROUP": self.group or "",
            "PYSPARK_PYTHON": str(self.python),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_SUBMIT_OPTS": f"{QUICK} -Djava.io.tmpdir={self.scratch}",
            "SPARK_LOCAL_DIRS": str(self.scratch),
            **more,
        }

    def start(self) -> None:
        (port,) = free_ports(1)
        self.url = f"spark://{MASTER}:{port}"
        self.home.mkdir(parents=True, exist_ok=True)
        self.scratch.mkdir()
        self.python.write_text(PYTHON.format(python=sys.executable, cpu=OLD_CPU, host=self._older_host()))
        self.python.chmod(0o755)
        self._configure_workers()
        self._start("master.Master", "master", "--host", MASTER, "--port", str(port), "--webui-port", "0")
        self._wait_for("master", "I have been elected leader")
        for name, address, cores in (("one", ONE, 2), ("other", OTHER, 2)):
            self._start(
                "worker.Worker",
                name,
                *("--host", address, "--webui-port", "0", "-c", str(cores), "-m", "1g"),
                *("-d", str(self.place / name), self.url),
                LW_TEST_HOST=name,
                SPARK_CONF_DIR=str(self.place / "conf"),
            )
        for name in ("one", "other"):
            self._wait_for(name, "Successfully registered with master")

    def _older_host(self) -> Path:
        """What qemu shows instead of the real /proc/cpuinfo: an older host would say so there, too."""
        cpuinfo = self.place / "older-host" / "proc" / "cpuinfo"
        cpuinfo.parent.mkdir(parents=True)
        told = re.sub(r" (fma|avx512\w*)\b", "", Path("/proc/cpuinfo").read_text())
        model = r"\1Intel Core Processor (Haswell, no FMA), emulated"
        cpuinfo.write_text(re.sub(r"(?m)^(model name\s*: ).*$", model, told))
        return cpuinfo.parent.parent

    def _configure_workers(self) -> None:
        """As the emitted text says; the job's own lines go to the job that wants them."""
        conf = self.place / "conf"
        conf.mkdir()
        (conf / "lastwords-discover.sh").write_text(self.placement.discovery_script)
        (conf / "lastwords-discover.sh").chmod(0o755)
        (conf / "spark-env.sh").write_text(self.placement.environment)

    def _start(self, role: str, name: str, *words: str, **environment: str) -> None:
        known = self.environment(SPARK_DAEMON_MEMORY="256m", SPARK_DAEMON_JAVA_OPTS=QUICK, **environment)
        program = Path(known["SPARK_HOME"], "bin", "spark-class")
        with (self.place / f"{name}.log").open("wb") as log:
            command = [str(program), f"org.apache.spark.deploy.{role}", *words]
            # A session of its own: the executors are children of these, and go with their group.
            self.processes.append(
                subprocess.Popen(
                    command,
                    stdout=log,
                    stderr=log,
                    env=known,
                    start_new_session=True,
                    preexec_fn=die_with_parent,  # noqa: PLW1509  # it makes one system call
                )
            )

    def _wait_for(self, name: str, words: str) -> None:
        log, until = self.place / f"{name}.log", time.monotonic() + PATIENCE
        while words not in log.read_text(errors="replace"):
            if time.monotonic() > until or any(one.poll() is not None for one in self.processes):
                raise RuntimeError(
                    f"the cluster's {name} did not start:\n{log.read_text(errors='replace')[-4000:]}"
                )
            time.sleep(0.05)

    def run(
        self, job: Path, *words: str, timeout: float = 900, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """A driver of its own, in a session of its own: its JVM must not outlive it."""
        command = [sys.executable, str(job), *words]
        return self.call(command, timeout=timeout, **environment)

    def call(
        self, command: list[str], *, timeout: float = 900, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """A variable that is given as empty is not set."""
        known = self.environment(**{"MASTER": self.url, "LW_TEST_PLACE": str(self.place), **environment})
        known = {name: value for name, value in known.items() if value}
        with subprocess.Popen(
            command,
            cwd=self.place,
            env=known,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509  # it makes one system call
        ) as driver:
            try:
                out, err = driver.communicate(timeout=timeout)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(driver.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(command, driver.returncode, out, err)

    def stop(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        for pid in left_over(str(self.place)):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.place / "one", ignore_errors=True)
        shutil.rmtree(self.place / "other", ignore_errors=True)


def die_with_parent() -> None:
    """A test run that is killed must not leave JVMs behind; executors go when their worker is gone."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind((MASTER, 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
