"""The process waited for a disk or a file server that did not answer.

A process in such a wait hears no signal, and often cannot even be killed; the kernel notes it after two minutes ("blocked
for more than 120 seconds"). Network file systems are the usual reason, then file systems in user space whose server has
died, then a full, failing or frozen disk. The worker looks hung, and its Python stack ends in a plain read or write, or
in a line that only touches memory: a page of a mapped file is read then.

One that comes back from its wait while it is looked at is slow, and not stuck: see `hang`. A disk that reports errors is
failing hardware; a file that is cut short is a cause of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.hang import FROZEN
from lastwords.causes.mentioned import field, nothing_said, reason
from lastwords.evidence.blocked import SERVED
from lastwords.evidence.model import Evidence, Hang

FREEZING = "percpu_rwsem_wait"
"""Where in the kernel a writer stands while its file system is frozen (`fsfreeze`, a snapshot of the disk)."""


def judge(evidence: Evidence) -> Iterator[Reason]:
    yield from nothing_said(
        [
            *reason(evidence, "stall_said", "io-stall"),
            *reason(evidence, "io_error", "io-error"),
            *_watched(evidence),
        ]
    )


def _watched(evidence: Evidence) -> Iterator[Reason]:
    found = evidence.hang
    if found is None or found.wait_channel in FROZEN:
        return
    if found.state == "D":
        channel = f" ({found.wait_channel})" if found.wait_channel else ""
        yield Reason(
            "sleeps_in_kernel",
            f"it sleeps where no signal reaches it, as one waits for a disk{channel}{_what(found)}",
        )
    elif not found.answered and _is_served(found):
        yield Reason("server_is_silent", f"it heard no signal any more{_what(found)}")
    if found.state == "D" and found.answered:
        yield Reason("came_back", "it came back from there while it was looked at: slow, and not stuck")


def _what(found: Hang) -> str:
    what = f"; it waits for {found.blocked_on}" if found.blocked_on else ""
    return f"{what}{_where(found)}"


def _where(found: Hang) -> str:
    return f", on {found.file_system}, mounted at {found.mount}" if found.mount and found.file_system else ""


def _is_served(found: Hang) -> bool:
    return (found.file_system or "").startswith(SERVED)


def sentence(evidence: Evidence) -> str:
    found = evidence.hang
    if found is None or not found.mount:
        return "It waited for a disk or a file server that did not answer."
    call = f" in {found.blocked_in}" if found.blocked_in else ""
    return (
        f"It waits{call} for the file system at {found.mount} ({found.file_system}), which does not answer."
    )


def facts(evidence: Evidence) -> Facts:
    hang = evidence.hang
    return {
        "command": field(evidence, ("io-stall",), "command"),
        "blocked_in": hang.blocked_in if hang else None,
        "wait_channel": hang.wait_channel if hang else None,
        "blocked_on": hang.blocked_on if hang else None,
        "mount": hang.mount if hang else None,
        "file_system": hang.file_system if hang else None,
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    found = evidence.hang
    yield from _for_its_kind(found) if found is not None and found.mount else ()
    yield Step(
        text="see who waits, and in which call of the kernel:",
        command="ps -eo pid,stat,wchan:32,cmd | awk '$2 ~ /D/'",
    )
    if found is None or not _is_served(found):
        yield Step(text="see whether the disks are busy or dead:", command="iostat -x 1 3")
    yield Step(
        text="copy the data to a local disk first; for NFS ask for the server's state (`nfsstat -m`, dmesg)"
    )


def _for_its_kind(found: Hang) -> Iterator[Step]:
    kind = found.file_system or ""
    if kind.startswith("fuse"):
        yield Step(
            text="see whether the process that serves it lives; whoever waits gets an error once it is unmounted:",
            command=f"umount --force --lazy {found.mount}",
        )
    elif kind.startswith("nfs"):
        yield Step(
            text="see whether its server answers:", command="dmesg | grep -i 'nfs: server'; nfsstat -m"
        )
        yield Step(text="mount it with `softerr,timeo=600`, so that a dead server becomes an error")
    elif found.wait_channel == FREEZING:
        yield Step(
            text="it may be frozen, as for a snapshot: let it go on:",
            command=f"fsfreeze --unfreeze {found.mount}",
        )


CAUSE = Cause(
    id="io-stall",
    title="It waited for a disk or a file server",
    doc=__doc__,
    needs=("hang", "mentions"),
    prior=-3.0,
    weights={
        "sleeps_in_kernel": 4.6,
        "server_is_silent": 4.6,
        "stall_said": 4.6,
        "io_error": 2.0,
        "came_back": -4.0,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("io-stall", "text:io-stall"),
    near_misses=("slow-disk", "text:hang", "text:hardware-fault"),
    fallback=1,
)
