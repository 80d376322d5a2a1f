"""A disk is full, or a quota is used up.

Checkpoints, spilled data, logs and caches fill a volume, often a small /tmp or the container's own layer. The worker
that wrote last fails, and others may die without a word. errno 28 also comes from /dev/shm, which is memory: there
the disk has room, and the cause is another.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import bare, first, from_text, nothing_said, reason, said
from lastwords.evidence.model import Evidence


def _quote(evidence: Evidence, where: str) -> str:
    return next(one.quote[:120] for one in said(evidence, "no-space") if one.fields.get("where") == where)


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [*reason(evidence, "said_so", "disk-full")]
    places = {one.fields.get("where") for one in said(evidence, "no-space")}
    if "disk" in places:
        reasons.append(
            Reason("no_space_on_disk", f"errno 28 where files are written: {_quote(evidence, 'disk')}")
        )
    elif "unknown" in places:
        name = "no_space_alone" if _is_a_line_alone(evidence) else "no_space"
        reasons.append(Reason(name, f"errno 28, where is not said: {_quote(evidence, 'unknown')}"))
    else:
        reasons.extend(reason(evidence, "write_failed", "write-failed"))
    if reasons and "shared memory" in places:
        reasons.append(Reason("shared_memory", "the space that is missing is that of /dev/shm"))
    if reasons and said(evidence, "shm-full"):
        reasons.append(Reason("shared_memory", "a line speaks of shared memory"))
    elif places and any(not one.fields.get("size") for one in said(evidence, "shm-small")):
        reasons.append(Reason("other_is_full", "`df` shows that it is /dev/shm that is full"))
    if bare(evidence, "SIGBUS") and not reasons:
        reasons = [*reason(evidence, "writes_mapped_file", "file-mapped")] or [
            Reason("bus_error", "SIGBUS is also what a write into a mapped file gets when the disk is full")
        ]
    if not reasons:
        reasons = [*reason(evidence, "io_error", "io-error")]
    yield from nothing_said(reasons)


def _is_a_line_alone(evidence: Evidence) -> bool:
    return from_text(evidence) and (evidence.exception is None or not evidence.exception.frames)


def sentence(evidence: Evidence) -> str:
    places = {one.fields.get("where") for one in said(evidence, "no-space")}
    if places == {"unknown"} and not said(evidence, "disk-full") and _is_a_line_alone(evidence):
        return "A disk that it writes to is full, or /dev/shm is: the words are the same."
    return "A disk that it writes to is full."


def facts(evidence: Evidence) -> Facts:
    found = first(evidence, "disk-full", "no-space")
    return {"line": found.line if found else None}


def remedy(_evidence: Evidence) -> Iterator[Step]:
    yield Step(text="see which volume:", command="df -h; df -i")
    yield Step(text="see what fills it:", command="du -xh --max-depth=2 /tmp | sort -h | tail -10")
    yield Step(
        text="move temporary files to a larger one: TMPDIR=; Ray: `ray start --temp-dir`; Spark: spark.local.dir; Hugging Face: HF_HOME"
    )
    yield Step(text="Kubernetes: resources.limits.ephemeral-storage or a volume; Docker: `docker system df`")


CAUSE = Cause(
    id="disk-full",
    title="The disk is full",
    doc=__doc__,
    needs=("mentions", "exception"),
    prior=-3.0,
    weights={
        "said_so": 5.9,
        "no_space_on_disk": 5.3,
        "no_space": 4.1,
        # /dev/shm says it in the same words, and no frame tells the two apart.
        "no_space_alone": 2.85,
        "write_failed": 3.9,
        "writes_mapped_file": 1.2,
        "bus_error": 0.2,
        "io_error": 1.0,
        "shared_memory": -5.0,
        "other_is_full": -3.0,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("disk-full", "text:disk-full"),
    near_misses=("text:shared-memory-full", "text:out-of-memory"),
)
