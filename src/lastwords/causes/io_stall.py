"""The process waited for a disk or a file server that did not answer.

A process in such a wait cannot even be killed; the kernel notes it after two minutes ("blocked for more than 120
seconds"). Network file systems are the usual reason, then a full or failing disk. The worker looks hung, and its
Python stack ends in a plain read or write.

A disk that reports errors is failing hardware; a file that is cut short is a cause of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.hang import FROZEN
from lastwords.causes.mentioned import field, nothing_said, reason
from lastwords.evidence.model import Evidence


def judge(evidence: Evidence) -> Iterator[Reason]:
    yield from nothing_said([*reason(evidence, "stall_said", "io-stall"), *_watched(evidence)])


def _watched(evidence: Evidence) -> Iterator[Reason]:
    found = evidence.hang
    if found is not None and found.state == "D" and found.wait_channel not in FROZEN:
        channel = f" ({found.wait_channel})" if found.wait_channel else ""
        what = f"; it waits for {found.blocked_on}" if found.blocked_on else ""
        yield Reason(
            "sleeps_in_kernel",
            f"it sleeps where no signal reaches it, as one waits for a disk{channel}{what}",
        )


def sentence(_evidence: Evidence) -> str:
    return "It waited for a disk or a file server that did not answer."


def facts(evidence: Evidence) -> Facts:
    hang = evidence.hang
    return {
        "command": field(evidence, ("io-stall",), "command"),
        "blocked_in": hang.blocked_in if hang else None,
        "wait_channel": hang.wait_channel if hang else None,
        "blocked_on": hang.blocked_on if hang else None,
    }


def remedy(_evidence: Evidence) -> Iterator[Step]:
    yield Step(
        text="see who waits, and in which call of the kernel:",
        command="ps -eo pid,stat,wchan:32,cmd | awk '$2 ~ /D/'",
    )
    yield Step(text="see whether the disks are busy or dead:", command="iostat -x 1 3")
    yield Step(
        text="copy the data to a local disk first; for NFS ask for the server's state (`nfsstat -m`, dmesg)"
    )


CAUSE = Cause(
    id="io-stall",
    title="It waited for a disk or a file server",
    doc=__doc__,
    needs=("hang", "mentions"),
    prior=-3.0,
    weights={
        "sleeps_in_kernel": 4.6,
        "stall_said": 4.6,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("text:io-stall",),
    near_misses=("text:hang", "text:hardware-fault"),
    fallback=1,
)
