"""The process made a system call that is forbidden where it runs.

A container's seccomp profile, a sandbox or a service manager allows only some calls. The others are refused with
EPERM, which old glibc versions and programs take badly ("can't start new thread" where clone3 is refused), or the
process is killed with SIGSYS, "Bad system call". The kernel's audit line names the call by number.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import field, nothing_said, reason
from lastwords.causes.words import signal_of
from lastwords.evidence.model import Evidence


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [*reason(evidence, "said_so", "seccomp")]
    if signal_of(evidence) == "SIGSYS":
        reasons.append(Reason("sigsys", "SIGSYS is sent for a forbidden system call"))
    if not reasons:
        reasons = [*reason(evidence, "thread_refused", "threads-refused")]
    yield from nothing_said(reasons)


def sentence(evidence: Evidence) -> str:
    number = field(evidence, ("seccomp",), "syscall")
    return f"It made a system call that is forbidden here{f' (number {number})' if number else ''}."


def facts(evidence: Evidence) -> Facts:
    return {"syscall": field(evidence, ("seccomp",), "syscall")}


def remedy(_evidence: Evidence) -> Iterator[Step]:
    yield Step(
        text="see which call the kernel refused:",
        command="sudo ausearch -m SECCOMP -ts recent; sudo dmesg | grep type=1326",
    )
    yield Step(text="update the container runtime (Docker 20.10.10 or later knows clone3)")
    yield Step(
        text="to be sure, once without the profile:", command="docker run --security-opt seccomp=unconfined …"
    )


CAUSE = Cause(
    id="seccomp",
    title="A system call is forbidden here",
    doc=__doc__,
    needs=("mentions", "status"),
    prior=-3.0,
    weights={
        "said_so": 4.8,
        "sigsys": 4.6,
        "thread_refused": 0.9,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("text:seccomp",),
    near_misses=("text:thread-limit", "killed-from-outside"),
)
