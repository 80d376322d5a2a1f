"""The settings of Spark that an explanation needs, added to what the user has set and never instead of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SHIPPED = Path(__file__).parent / "shipped" / "lastwords_spark_daemon.py"
DAEMON = "spark.python.daemon.module"
OURS = frozenset({SHIPPED.stem, "lastwords.spark_daemon"})
USE_DAEMON = "spark.python.use.daemon"
QUOTE = "spark.python.worker.faulthandler.enabled"
QUOTE_SQL = "spark.sql.execution.pyspark.udf.faulthandler.enabled"
FILES = "spark.files"
PYTHON_PATH = "spark.executorEnv.PYTHONPATH"
HANG_AFTER = "spark.executorEnv.LASTWORDS_SPARK_HANG_AFTER"
KILL_HUNG = "spark.executorEnv.LASTWORDS_SPARK_KILL_HUNG"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asked of us."""

    hang_after: float | None = None
    kill_hung: bool = False


class Declined(Exception):
    """The user's own settings leave no room for ours; the text says which."""


def additions(get: Callable[[str], str | None], wishes: Wishes) -> dict[str, str]:
    """What to add to a configuration, read by `get`. Raises Declined."""
    module = get(DAEMON)
    if module is not None and module not in OURS and module != "pyspark.daemon":
        raise Declined(f"{DAEMON} is {module} already")
    if get(USE_DAEMON) == "false":
        raise Declined(f"{USE_DAEMON} is false, and without a daemon nobody sees how a worker ends")
    found = {} if module in OURS else {DAEMON: SHIPPED.stem, **_sent(get)}
    found |= {name: "true" for name in (QUOTE, QUOTE_SQL) if get(name) is None}
    if wishes.hang_after is not None:
        found[HANG_AFTER] = str(wishes.hang_after)
    if wishes.kill_hung:
        found[KILL_HUNG] = "1"
    return found


def _sent(get: Callable[[str], str | None]) -> dict[str, str]:
    """How the daemon's file reaches the executors, which may have no lastwords.

    Spark puts `spark.files` into an executor's working directory before it starts the daemon, and `python -m` looks
    there first. A local master has no such directory; there PYTHONPATH does it. On a cluster that variable would
    replace the one that the hosts' own administrators have set.
    """
    if (get("spark.master") or "").startswith("local") and "cluster" not in (get("spark.master") or ""):
        return {PYTHON_PATH: os.pathsep.join(filter(None, (get(PYTHON_PATH), str(SHIPPED.parent))))}
    return {FILES: ",".join(filter(None, (get(FILES), str(SHIPPED))))}
