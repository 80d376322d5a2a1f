"""A Spark Connect server of its own process, as `sbin/start-connect-server.sh` starts it, on any free port."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.engines.processes import end_group
from tests.engines.spark.cluster import PATIENCE, QUICK, die_with_parent

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
STARTED = re.compile(r"Spark Connect server started at: \S*:(\d+)")
LASTWORDS = [str(Path(sys.executable).with_name("lastwords")), "run", "--"]
EXPLAINING = {
    "spark.python.daemon.module": "lastwords.spark_daemon",
    "spark.python.worker.faulthandler.enabled": "true",
}
"""The two lines of a server whose hosts have lastwords."""
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": QUICK,
    "spark.cores.max": "2",
    "spark.task.maxFailures": "1",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}


@contextlib.contextmanager
def connect_server(
    log: Path, environment: dict[str, str], master: str, **settings: str
) -> Iterator[tuple[str, Path]]:
    """Its address for clients, and its log."""
    submit = Path(environment["SPARK_HOME"], "bin", "spark-submit")
    conf = [
        word for name, value in {**SETTINGS, **settings}.items() for word in ("--conf", f"{name}={value}")
    ]
    command = [str(submit), "--master", master, *conf, "--class", SERVER, "spark-internal"]
    with log.open("wb") as output:
        server = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            env=environment,
            cwd=log.parent,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509  # it makes one system call
        )
    try:
        yield f"sc://127.0.0.1:{_port(server, log)}", log
    finally:
        end_group(server, patience=30)


def _port(server: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + 5 * PATIENCE
    while (found := STARTED.search(log.read_text(errors="replace"))) is None:
        if server.poll() is not None or time.monotonic() > until:
            raise RuntimeError(
                f"the Connect server did not start:\n{log.read_text(errors='replace')[-4000:]}"
            )
        time.sleep(0.05)
    return found[1]
