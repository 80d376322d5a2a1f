"""The deaths of a session of Spark Connect, as its client ends: also those that a retry has hidden.

A client has no SparkContext to ask. But the server's web interface has the same store behind it, and each job there has
a tag with its session. Where that cannot be reached from here, nothing is said, and nobody waits for it.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from lastwords.engines.spark.report import MOST_TASKS, Death, parse, say

SECONDS = 2.0
"""For the server, and for each page of its web interface."""
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
    base, jobs = _find_interface(client, known)
    tag = f"_Session_{client._session_id}_"
    ours = {stage for job in jobs for stage in job["stageIds"] if any(tag in one for one in job["jobTags"])}
    for stage in sorted(_page(f"{base}/stages"), key=lambda one: int(one["stageId"])):
        if stage["stageId"] in ours and stage["numFailedTasks"]:
            attempt = f"{stage['stageId']}/{stage['attemptId']}"
            for task in _page(f"{base}/stages/{attempt}/taskList?status=failed&length={MOST_TASKS}"):
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


def _find_interface(client: Any, known: dict[str, str]) -> tuple[str, list[Any]]:
    """Where this application's pages are, and that of its jobs."""
    first = int(known.get(PORT, FIRST_PORT))
    hosts = dict.fromkeys((str(client.host), known.get(HOST, str(client.host))))
    reason: OSError = ConnectionError("Spark has no web interface there")
    for host in hosts:
        for port in range(first, first + PORTS):
            base = f"http://{host}:{port}/api/v1/applications/{known[APP]}"
            try:
                return base, _page(f"{base}/jobs")
            except HTTPError as error:  # another application's
                reason = error
            except OSError as error:
                reason = error
                break
    raise reason


def _page(address: str) -> Any:
    """Straight from there: a proxy for the web knows no hosts of a cluster."""
    with build_opener(ProxyHandler({})).open(address, timeout=SECONDS) as page:
        return json.load(page)
