"""A connection to another machine failed, and the work with it.

The server closed it, a name did not resolve, a download stopped halfway, the scheduler did not hear a heartbeat. One
such failure in a worker that does not try again ends the whole job.

Broken pipes and closed connections between processes of one job are echoes: the other end died. Time-outs of
collectives have a cause of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import first, nothing_said, quoted, reason, said
from lastwords.evidence.model import Evidence, Mention
from lastwords.evidence.text.echoes import is_echo

# Code that speaks to other processes of the same job, and on the same host: its connections end when those do.
_OWN = re.compile(r"multiprocessing|billiard|loky|py4j|pyspark\W(?:serializers|daemon|worker|java_gateway)")


def _own_pipe(evidence: Evidence) -> bool:
    found = evidence.exception
    return found is not None and any(_OWN.search(frame.file) for frame in found.frames[:4])


CRASHES = (
    "fault",
    "signal",
    "oom-kill",
    "gpu-oom",
    "cuda-illegal",
    "cuda-assert",
    "hardware-error",
    "fatal-python",
)
"""Ends of a rank after which the others find its connections closed."""


def judge(evidence: Evidence) -> Iterator[Reason]:
    between_ranks = {one.line for one in said(evidence, "peer-lost")}
    elsewhere = [one for one in said(evidence, "network-failure") if one.line not in between_ranks]
    reasons = [quoted("said_so", one) for one in elsewhere[:1]]
    if not reasons:
        reasons = [
            *reason(evidence, "peer_gone", "peer-lost"),
            *reason(evidence, "not_heard", "heartbeat-lost"),
            *reason(evidence, "closed", "peer-closed"),
        ]
    if reasons and _own_pipe(evidence):
        reasons.append(
            Reason("own_pipe", "the connection was between two processes of the job: the other end died")
        )
    elif reasons and not _never_connected(evidence) and (earlier := _earlier_failure(evidence)) is not None:
        reasons.append(Reason("after_a_failure", f"another process had failed before: {earlier.quote[:120]}"))
    elif (
        reasons
        and not _never_connected(evidence)
        and said(evidence, "lost", "parent-gone", "collective-timeout")
    ):
        reasons.append(Reason("may_be_echo", "somebody died as well: this may be the echo"))
    yield from nothing_said(reasons)


def _earlier_failure(evidence: Evidence) -> Mention | None:
    """An exception with its traceback, above the first word of a connection: its peers lost it then.

    Not where an exception itself tells of the connection: then the two may be one chain.
    """
    network = said(evidence, "network-failure", "peer-lost")
    between_ranks = {one.line for one in said(evidence, "peer-lost")}
    if network and network[0].line in between_ranks:
        crash = first(evidence, *CRASHES)
        if crash is not None and crash.line < network[0].line:
            return crash
    own = evidence.exception
    if not network or own is None or not own.frames or is_echo(own.kind, own.message):
        return None
    raised = said(evidence, "exception")
    if {one.line for one in raised} & {one.line for one in said(evidence, "network-failure")}:
        return None
    return next((one for one in raised if one.source == own.source and one.line < network[0].line), None)


def _never_connected(evidence: Evidence) -> bool:
    return any(one.fields.get("step") == "connect" for one in said(evidence, "network-failure"))


def sentence(_evidence: Evidence) -> str:
    return "A connection failed, and nothing tried again."


def facts(evidence: Evidence) -> Facts:
    found = first(evidence, "network-failure", "peer-lost", "peer-closed")
    return {"line": found.line if found else None, "system": found.system if found else None}


def remedy(evidence: Evidence) -> Iterator[Step]:
    if any("NCCL" in one.quote for one in said(evidence, "network-failure", "peer-lost")):
        yield Step(
            text="see from that host whether the peer can be reached (its address and port stand in the line):",
            command="nc -vz HOST PORT; ip -brief address",
        )
        yield Step(
            text="tell NCCL which network connects the hosts, and open its ports between them in the firewall:",
            command="export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0",
        )
        return
    yield Step(
        text="try again with growing pauses around the call that failed (tenacity, urllib3.Retry, botocore's retries={'max_attempts': 10})"
    )
    yield Step(text="see whether the other end is there:", command="curl -sv --max-time 5 URL -o /dev/null")
    yield Step(
        text="Spark: raise spark.network.timeout; Dask: distributed.comm.timeouts; Ray: look at the node of the other end first"
    )
    yield Step(text="copy data to local disk before a long run, instead of streaming it for hours")


CAUSE = Cause(
    id="network-failure",
    title="A connection failed",
    doc=__doc__,
    needs=("exception", "mentions"),
    prior=-3.0,
    weights={
        "said_so": 5.6,
        "peer_gone": 2.1,
        "not_heard": 2.4,
        "closed": 2.75,
        "own_pipe": -3.0,
        "may_be_echo": -1.6,
        "after_a_failure": -3.2,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("connection-refused", "text:network-failure"),
    near_misses=("text:collective-timeout", "text:parent-died"),
    fallback=1,
)
