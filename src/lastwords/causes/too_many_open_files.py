"""The process has as many files open as it may.

Sockets, pipes and shared memory count as files. torch passes each tensor between processes as an open descriptor, so a
list of kept batches is enough; each pool worker costs several pipes. The usual limit is 1024. The message is "Too many
open files", or only "received 0 items of ancdata": a descriptor that did not fit was dropped on the way.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import first, nothing_said, reason, said
from lastwords.causes.words import growth_of
from lastwords.evidence.model import Evidence

NEARLY = 0.98


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [*reason(evidence, "said_so", "open-files")]
    if not reasons:
        reasons = [*reason(evidence, "open_failed", "shm-open-failed")]
    yield from nothing_said([*reasons, *_watched(evidence), *_leak(evidence)])


def _watched(evidence: Evidence) -> Iterator[Reason]:
    for limit in (evidence.machine.limits or ()) if evidence.machine else ():
        if (
            limit.name == "open files"
            and limit.soft
            and limit.used is not None
            and limit.used >= NEARLY * limit.soft
        ):
            yield Reason("at_the_limit", f"{limit.used} files were open, and {limit.soft} are allowed")


def _leak(evidence: Evidence) -> Iterator[Reason]:
    leak = growth_of(evidence, "open files")
    if leak is not None:
        limit = f"; {leak.limit} are allowed" if leak.limit is not None else ""
        yield Reason(
            "files_leak", f"it opened {leak.per_item:.1f} files more per item over {leak.items} items{limit}"
        )


def _is_the_machines(evidence: Evidence) -> bool:
    """ENFILE, not EMFILE."""
    return any("files in system" in one.quote for one in said(evidence, "open-files"))


def sentence(evidence: Evidence) -> str:
    if _is_the_machines(evidence):
        return "The whole machine has as many files open as it may."
    return "It has as many files open as it may, and could not open another."


def facts(evidence: Evidence) -> Facts:
    found, leak = first(evidence, "open-files", "shm-open-failed"), growth_of(evidence, "open files")
    return {
        "line": found.line if found else None,
        "per_item": leak.per_item if leak else None,
        "limit": leak.limit if leak else None,
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    if _is_the_machines(evidence):
        yield Step(
            text="see how many are open, and how many there may be (first and last number):",
            command="cat /proc/sys/fs/file-nr",
        )
        yield Step(
            text="raise that, and find who has so many:",
            command="sudo sysctl fs.file-max=4000000; sudo lsof -n | awk '{print $1}' | sort | uniq -c | sort -n | tail",
        )
        return
    yield Step(text="raise the limit (in the shell that starts the job):", command="ulimit -n 65536")
    yield Step(
        text="torch: pass tensors by file name instead of by descriptor:",
        command="torch.multiprocessing.set_sharing_strategy('file_system')",
    )
    yield Step(text="do not keep batches in a list: copy what you need (`x.clone()`), and let go of the rest")
    yield Step(
        text="see what is open:",
        command="ls -l /proc/PID/fd | awk '{print $NF}' | sort | uniq -c | sort -n | tail",
    )
    yield Step(
        text="Docker: --ulimit nofile=65536; systemd: LimitNOFILE=; Slurm: ulimit -n in the job script"
    )


CAUSE = Cause(
    id="too-many-open-files",
    title="Too many files are open",
    doc=__doc__,
    needs=("mentions", "exception", "growth", "machine"),
    prior=-3.0,
    weights={
        "said_so": 6.3,
        "open_failed": 2.9,
        "at_the_limit": 2.5,
        "files_leak": 1.0,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("too-many-open-files", "text:too-many-open-files"),
    near_misses=("text:thread-limit", "text:shared-memory-full"),
)
