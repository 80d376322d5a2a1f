"""The process ended because its parent, driver or supervisor had died.

Workers are told to go when their parent goes: by PR_SET_PDEATHSIG, by a pipe that closes, by a heartbeat that stays
away. They are victims, and what they print (broken pipes, lost connections) says nothing about the reason: that lies
with the parent.

It is told by words about the parent, by a worker that says its parent changed, or by `lastwords run`, which saw the
parent end first. If both died of the same signal in the same moment, somebody may have killed both.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import first, from_text, nothing_said, reason
from lastwords.causes.words import ended, signal_of
from lastwords.evidence import signals
from lastwords.evidence.model import Evidence
from lastwords.evidence.quantities import duration

SOON = 10.0
"""Seconds: watchdogs of workers look for their parent every five."""


def judge(evidence: Evidence) -> Iterator[Reason]:
    said_so = list(reason(evidence, "parent_said", "parent-gone"))
    if not said_so:
        said_so.extend(reason(evidence, "manager_gone", "manager-lost"))
    if said_so and from_text(evidence) and signals.family_of(signal_of(evidence)) in ("fault", "abort"):
        said_so.append(
            Reason(
                "crash_seen", f"the log has a crash as well, {signal_of(evidence)}: it may be the parent's"
            )
        )
    yield from nothing_said([*said_so, *_watched(evidence)])


def _watched(evidence: Evidence) -> Iterator[Reason]:
    """It ended right after its parent: of a signal that the kernel sends to those that have asked for it, or by itself,
    as torch's workers do (exit code 0).
    """
    parent, status = evidence.parent_end, evidence.status
    if parent is None or status is None or parent.seconds_before > SOON:
        return
    if signals.family_of(status.signal) != "kill" and (status.exit_code is None or _has_raised(evidence)):
        return
    how = parent.signal or f"exit code {parent.exit_code}"
    yield Reason(
        "parent_was_gone",
        f"its parent, pid {parent.pid}, had ended {duration(parent.seconds_before)} before ({how})",
    )
    if (parent.signal, parent.exit_code) != (status.signal, status.exit_code):
        yield Reason("another_end", f"the two ended in different ways: {ended(evidence)}")


def _has_raised(evidence: Evidence) -> bool:
    return evidence.exception is not None and evidence.exception.fatal


def sentence(_evidence: Evidence) -> str:
    return "It ended because the process that it worked for had died before."


def facts(evidence: Evidence) -> Facts:
    found, parent = first(evidence, "parent-gone", "manager-lost"), evidence.parent_end
    return {
        "line": found.line if found else None,
        "parent": parent.pid if parent else None,
        "seconds_before": parent.seconds_before if parent else None,
    }


def remedy(_evidence: Evidence) -> Iterator[Step]:
    yield Step(
        text="look at the parent's own end, earlier in time: its log, `lastwords list`, `sudo dmesg -T | tail -50`"
    )
    yield Step(
        text="have parent and workers recorded together:", command="lastwords run -- python YOUR_JOB.py"
    )


CAUSE = Cause(
    id="parent-died",
    title="Its parent died first",
    doc=__doc__,
    needs=("parent_end", "mentions", "status"),
    prior=-3.0,
    weights={
        "parent_said": 4.9,
        # What killed the manager of a node may well have killed its workers.
        "manager_gone": 2.6,
        "crash_seen": -2.2,
        "parent_was_gone": 3.2,
        "another_end": 2.2,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("parent-died", "text:parent-died"),
    near_misses=("text:network-failure", "killed-by-parent", "sys-exit"),
    fallback=1,
)
