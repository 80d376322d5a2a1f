"""The settings of Spark that an explanation needs, added to what the user has set and never instead of it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SHIPPED = Path(__file__).parent / "shipped" / "lastwords_spark_daemon.py"
DAEMON = "spark.python.daemon.module"
INSTALLED = "lastwords.spark_daemon"
OURS = frozenset({SHIPPED.stem, INSTALLED})
USE_DAEMON = "spark.python.use.daemon"
QUOTE = "spark.python.worker.faulthandler.enabled"
QUOTE_SQL = "spark.sql.execution.pyspark.udf.faulthandler.enabled"
FILES = "spark.files"
ISOLATED = "spark.sql.artifact.isolation.enabled"
PYTHON_PATH = "spark.executorEnv.PYTHONPATH"
HANG_AFTER = "spark.executorEnv.LASTWORDS_SPARK_HANG_AFTER"
KILL_HUNG = "spark.executorEnv.LASTWORDS_SPARK_KILL_HUNG"
COLLECT = "spark.executorEnv.LASTWORDS_COLLECT"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asked of us."""

    hang_after: float | None = None
    kill_hung: bool = False
    collect: str | None = None
    """Where the executors' deaths go, too."""


class Declined(Exception):
    """The user's own settings leave no room for ours; the text says which."""


def additions(get: Callable[[str], str | None], wishes: Wishes) -> dict[str, str]:
    """What to add to a configuration, read by `get`. Raises Declined."""
    module = get(DAEMON)
    if module is not None and module not in OURS and module != "pyspark.daemon":
        raise Declined(f"{DAEMON} is {module} already")
    if get(USE_DAEMON) == "false":
        raise Declined(f"{USE_DAEMON} is false, and without a daemon nobody sees how a worker ends")
    found = {} if module in OURS else _our_daemon(get)
    found |= {name: "true" for name in (QUOTE, QUOTE_SQL) if get(name) is None}
    if wishes.hang_after is not None:
        found[HANG_AFTER] = str(wishes.hang_after)
    if wishes.kill_hung:
        found[KILL_HUNG] = "1"
    if wishes.collect is not None and get(COLLECT) is None:
        found[COLLECT] = wishes.collect
    return found


def _our_daemon(get: Callable[[str], str | None]) -> dict[str, str]:
    if not _is_isolated(get):
        return {DAEMON: SHIPPED.stem, **_sent(get)}
    if _is_local(get) and _have_our_interpreter(get):
        return {DAEMON: INSTALLED}
    raise Declined(
        f"sessions of Spark Connect send their workers no files; where lastwords is installed on all hosts, set {DAEMON} "
        f"to {INSTALLED}"
    )


def _is_isolated(get: Callable[[str], str | None]) -> bool:
    """Each session then has its own files: its workers start in a directory of their own, and are given none of the
    variables that this driver sets for them. A module that they do not find ends every one of them. (4.3, Spark Connect)
    """
    return "SparkConnectPlugin" in (get("spark.plugins") or "") or get(ISOLATED) == "true"


def _is_local(get: Callable[[str], str | None]) -> bool:
    master = get("spark.master") or ""
    return master.startswith("local") and "cluster" not in master


def _have_our_interpreter(get: Callable[[str], str | None]) -> bool:
    """The one that runs this has lastwords. Links are not followed: those of two environments may lead to one file."""
    name = get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or "python3"
    return os.path.abspath(shutil.which(name) or "") == os.path.abspath(sys.executable)


def _sent(get: Callable[[str], str | None]) -> dict[str, str]:
    """How the daemon's file reaches the executors, which may have no lastwords.

    Spark puts `spark.files` into an executor's working directory before it starts the daemon, and `python -m` looks
    there first. A local master has no such directory; there PYTHONPATH does it. On a cluster that variable would
    replace the one that the hosts' own administrators have set.
    """
    if _is_local(get):
        return {PYTHON_PATH: os.pathsep.join(filter(None, (get(PYTHON_PATH), str(SHIPPED.parent))))}
    return {FILES: ",".join(filter(None, (get(FILES), str(SHIPPED))))}
