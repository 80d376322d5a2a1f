"""In a client of Spark Connect, whose settings are those of its server.

Where that one has lastwords, the exception that the client is sent has the explanation in it, and the client needs
nothing. Where it has not, the client's own lastwords says what to set there. What retries have hidden, it tells at the end.
"""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any

from lastwords.engines import notes
from lastwords.engines.contract import log
from lastwords.engines.spark import ENGINE
from lastwords.engines.spark.settings import DAEMON, HANG_AFTER, INSTALLED, KILL_HUNG, QUOTE, Wishes

MODULE = "pyspark.sql.connect.client.core"
CRASHED = "Python worker exited unexpectedly (crashed)"
EXPLAINED = "✗ Python worker (pid "
RECORD_IT = (
    "lastwords: nobody recorded this worker. For signal, row, line and cause: pip install lastwords, on the hosts of that\n"
    "  Spark, and two lines in the conf/spark-defaults.conf of its Connect server:\n"
    f"  {DAEMON}                {INSTALLED}\n"
    f"  {QUOTE}  true"
)


@ENGINE.guarded
def adapt(module: ModuleType) -> None:
    convert: Any = module.__dict__["convert_exception"]
    if hasattr(convert, "_lastwords"):
        return
    hint = ENGINE.guarded(_hint)

    @functools.wraps(convert)
    def convert_exception(*args: Any, **kwargs: Any) -> Any:
        error = convert(*args, **kwargs)
        hint(error)
        return error

    convert_exception._lastwords = True  # type: ignore[attr-defined]
    module.convert_exception = convert_exception  # type: ignore[attr-defined]
    _tell_at_the_end(module.SparkConnectClient)


def _tell_at_the_end(client: Any) -> None:
    """Before the session is released, closed, or left behind at the end of the program, whichever comes first."""
    for name in ("release_session", "close", "_on_exit"):
        if hasattr(client, name):
            setattr(client, name, _telling(getattr(client, name)))


def _telling(end: Any) -> Any:
    @functools.wraps(end)
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        ENGINE.guarded(_tell)(self)
        return end(self, *args, **kwargs)

    return told


def _tell(client: Any) -> None:
    from lastwords.engines.spark import connect_report  # which loads urllib: nobody needs that before the end

    connect_report.tell(client)


def _hint(error: BaseException) -> None:
    text = str(error)
    if CRASHED in text and EXPLAINED not in text:
        notes.add(error, RECORD_IT)


def is_elsewhere(builder: Any) -> bool:
    """Whether this session's Spark is a server that runs already."""
    url = getattr(builder, "_options", {}).get("spark.remote") or os.environ.get("SPARK_REMOTE") or ""
    return str(url).startswith("sc://")


def tell_what_is_not_ours(wishes: Wishes) -> None:
    asked = {HANG_AFTER: wishes.hang_after, KILL_HUNG: "1" if wishes.kill_hung else None}
    lines = [f"{name} {value}" for name, value in asked.items() if value is not None]
    if lines:
        log(
            f"Spark: this session's server runs already, and these are its settings to make: {', '.join(lines)}"
        )
