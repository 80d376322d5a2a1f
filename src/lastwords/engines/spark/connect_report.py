"""The deaths of a session of Spark Connect, as its client ends: also those that a retry has hidden.

A client has no SparkContext to ask. But the server's web interface has the same store behind it, and each job there has
a tag with its session. Where that cannot be reached from here, nothing is said, and nobody waits for it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

from lastwords.engines.spark.report import MOST_TASKS, Death, parse, say

SECONDS = 2.0
"""For the server, and to be let in by its web interface."""
MOST_SECONDS = 10.0
"""For all pages of that together. The first one loads hundreds of classes: over 2 s were seen on a busy machine."""
FIRST_PORT, PORTS = 4040, 4
"""Spark takes the next port where one is taken, by another Spark most often."""
APP, ENABLED, PORT, HOST = "spark.app.id", "spark.ui.enabled", "spark.ui.port", "spark.driver.host"


def tell(client: Any) -> None:
    """Prints what was lost, once for each client. A server that is gone is no reason to hold up whoever leaves it."""
    if client.__dict__.get("_lastwords_told") or client.is_closed or _is_at_home():
        return
    client._lastwords_told = True
    with contextlib.suppress(Exception):  # grpc's, urllib's or json's own: it was a favour
        say(deaths(client))


def _is_at_home() -> bool:
    """With `remote("local[*]")` the server is this process's own, and tells of its deaths as every Spark does."""
    context = getattr(
        sys.modules.get("pyspark"), "SparkContext", None
    )  # which a client's own package has not
    return getattr(context, "_active_spark_context", None) is not None


def deaths(client: Any) -> Iterator[Death]:
    """Of this session, in the order of their stages. Raises whatever keeps it from being asked."""
    known = _settings(client)
    if known.get(ENABLED) == "false" or APP not in known:
        return
    pages = _find_interface(client, known)
    jobs, stages = pages.get("jobs"), pages.get("stages")
    tag = f"_Session_{client._session_id}_"
    ours = {stage for job in jobs for stage in job["stageIds"] if any(tag in one for one in job["jobTags"])}
    for stage in sorted(stages, key=lambda one: int(one["stageId"])):
        if stage["stageId"] in ours and stage["numFailedTasks"]:
            attempt = f"{stage['stageId']}/{stage['attemptId']}"
            for task in pages.get(f"stages/{attempt}/taskList?status=failed&length={MOST_TASKS}"):
                found = parse(task.get("errorMessage", ""), task["host"], task["executorId"])
                if found is not None:
                    yield found


def _settings(client: Any) -> dict[str, str]:
    """Of the server. Asked without the client's own patience, which outlasts a server by many minutes."""
    from pyspark.sql.connect.proto import base_pb2

    request = client._config_request_with_metadata()
    wanted = base_pb2.ConfigRequest.GetOption(keys=[APP, ENABLED, PORT, HOST])
    request.operation.CopyFrom(base_pb2.ConfigRequest.Operation(get_option=wanted))
    answer = client._stub.Config(request, metadata=client._builder.metadata(), timeout=SECONDS)
    return {pair.key: pair.value for pair in answer.pairs if pair.HasField("value")}


def _find_interface(client: Any, known: dict[str, str]) -> _Pages:
    """Where this application's pages are."""
    first = int(known.get(PORT, FIRST_PORT))
    hosts = dict.fromkeys((str(client.host), known.get(HOST, str(client.host))))
    end = time.monotonic() + MOST_SECONDS
    reason: OSError = ConnectionError("Spark has no web interface there")
    for host in hosts:
        for port in range(first, first + PORTS):
            pages = _Pages(host, port, known[APP], end)
            try:
                pages.get("")
            except _OfAnother as error:
                reason = error
            except OSError as error:
                reason = error
                break
            else:
                return pages
    raise reason


class _OfAnother(OSError):
    """There is a Spark, and it does not know this application."""


class _Pages:
    """Straight from there: a proxy for the web knows no hosts of a cluster."""

    def __init__(self, host: str, port: int, application: str, end: float) -> None:
        self._address = host, port
        self._base = f"/api/v1/applications/{application}"
        self._end = end

    def get(self, path: str) -> Any:
        with contextlib.closing(HTTPConnection(*self._address, timeout=SECONDS)) as connection:
            connection.connect()
            connection.sock.settimeout(max(0.1, self._end - time.monotonic()))
            connection.request("GET", f"{self._base}/{path}".rstrip("/"))
            answer = connection.getresponse()
            if answer.status >= 400:
                raise _OfAnother(f"{answer.status} {answer.reason}")
            return json.load(answer)
