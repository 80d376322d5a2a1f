"""Shared memory (/dev/shm) is full.

DataLoader workers, multiprocessing's locks and queues, NCCL and Ray's object store keep data in /dev/shm. Docker gives
a container 64 MB of it. Who writes past its end gets SIGBUS; who asks first gets errno 28, "No space left on device",
while every disk has room.

SIGBUS alone does not prove it, and torch's hint about shared memory is a guess: a file that was cut short while it was
mapped, memory that ran out, and failing hardware end the same way.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import bare, first, nothing_said, only_lost, quoted, reason, said
from lastwords.causes.words import growth_of, per_item, signal_of
from lastwords.evidence.model import Evidence

PLACE = "/dev/shm"  # noqa: S108 (a place to recognise; nothing is written there)
NEARLY = 0.02


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [*reason(evidence, "said_so", "shm-full")]
    space = [one for one in said(evidence, "no-space") if one.fields.get("where") == "shared memory"]
    other = [one for one in said(evidence, "no-space") if one.fields.get("where") == "unknown"]
    if space:
        reasons.append(quoted("no_space_shared", space[0]))
    elif other:
        reasons.append(quoted("no_space", other[0]))
    reasons += [*reason(evidence, "open_failed", "shm-open-failed"), *reason(evidence, "small", "shm-small")]
    full = [one for one in said(evidence, "shm-small") if not one.fields.get("size")]
    if not space and said(evidence, "no-space") and full:
        reasons.append(Reason("df_agrees", "errno 28, and `df` shows that it is /dev/shm that is full"))
    reasons += _watched(evidence)
    if bare(evidence, "SIGBUS"):
        reasons.append(Reason("bus_error", "SIGBUS is what a write past the end of /dev/shm gets"))
        reasons.extend(reason(evidence, "hinted", "shm-hint"))
        if any(
            "nccl" in (one.fields.get("function", "") + one.fields.get("library", "")).lower()
            for one in said(evidence, "native-frame")
        ):
            reasons.append(Reason("in_nccl", "it happened in NCCL, which keeps its buffers in /dev/shm"))
    if only_lost(evidence) and any(one.system == "torch DataLoader" for one in said(evidence, "lost")):
        reasons.append(
            Reason("worker_lost", "a loader's worker vanished, as one does that finds /dev/shm full")
        )
    if not reasons and any("unhandled system error" in one.quote for one in said(evidence, "peer-lost")):
        text = "NCCL says no more than `system error`, also where /dev/shm has no room for its buffers"
        reasons.append(Reason("nccl_failed", text))
    leak = growth_of(evidence, "shared memory")
    if reasons and leak is not None:
        reasons.append(Reason("grew_to_it", f"it left {per_item(leak)} in {PLACE}"))
    yield from nothing_said(reasons)


def _watched(evidence: Evidence) -> Iterator[Reason]:
    """The fault and the file system, where they were recorded."""
    fault = evidence.fault
    if fault is not None and fault.signal == "SIGBUS" and (fault.address_in or "").startswith(PLACE):
        yield Reason("in_shared_memory", f"SIGBUS at an address inside {fault.address_in}")
    for space in (evidence.machine.spaces or ()) if evidence.machine else ():
        is_full = space.free < max(NEARLY * space.total, 1 << 16)
        if space.path == PLACE and is_full and signal_of(evidence) == "SIGBUS":
            yield Reason("no_room", f"{PLACE} has {space.free} of {space.total} bytes left")


def sentence(_evidence: Evidence) -> str:
    return "Shared memory (/dev/shm) is full; in a container it is small unless you say otherwise."


def facts(evidence: Evidence) -> Facts:
    found, leak = first(evidence, "shm-full", "no-space", "shm-hint"), growth_of(evidence, "shared memory")
    return {
        "line": found.line if found else None,
        "per_item": int(leak.per_item) if leak else None,
        "items": leak.items if leak else None,
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    if growth_of(evidence, "shared memory") is not None:
        yield Step(
            text="its files there are never removed: call `unlink()` on each SharedMemory, `close()` is not enough"
        )
    yield Step(text="see how large it is, while the job runs:", command="df -h /dev/shm")
    yield Step(text="Docker:", command="docker run --shm-size=8g …")
    yield Step(
        text="Kubernetes: mount an emptyDir with medium: Memory at /dev/shm; Slurm with containers: --container-mounts of the host's /dev/shm"
    )
    yield Step(
        text="torch, without more of it: `torch.multiprocessing.set_sharing_strategy('file_system')`, or fewer workers"
    )
    yield Step(text="remove what dead jobs left there:", command="ls -lt /dev/shm | head")


CAUSE = Cause(
    id="shared-memory-full",
    title="Shared memory is full",
    doc=__doc__,
    needs=("mentions", "status", "growth"),
    prior=-3.0,
    weights={
        "in_shared_memory": 4.7,
        "no_room": 2.5,
        "said_so": 6.0,
        "no_space_shared": 5.8,
        "no_space": 1.1,
        "open_failed": 1.4,
        "small": 2.4,
        "df_agrees": 1.2,
        "bus_error": 1.9,
        "hinted": 1.0,
        "worker_lost": 0.9,
        "in_nccl": 2.7,
        "nccl_failed": 0.9,
        "grew_to_it": 0.6,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("shared-memory-full", "text:shared-memory-full"),
    near_misses=("text:disk-full", "text:file-truncated"),
)
