"""The process made a system call that is forbidden where it runs.

A container's seccomp profile, a sandbox or a service manager allows only some calls. The others are refused with
EPERM, which old glibc versions and programs take badly ("can't start new thread" where clone3 is refused), or the
process is killed with SIGSYS, "Bad system call". The kernel's audit line names the call by number; a profile that
answers with a trap lets the crash handler see the call itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import field, nothing_said, reason, said
from lastwords.causes.words import place, signal_of
from lastwords.evidence import syscalls
from lastwords.evidence.model import Evidence

SYS_SECCOMP = 1
"""si_code of a signal that a seccomp filter sent."""
# Where the number of a system call is when it is made; the kernel puts it back there before it sends SIGSYS.
NUMBER_IN = {"x86_64": "rax", "aarch64": "x8"}


def _number(evidence: Evidence) -> int | None:
    fault = evidence.fault
    if fault is None or fault.signal != "SIGSYS" or fault.code != SYS_SECCOMP:
        return None
    return fault.registers.get(NUMBER_IN.get(fault.architecture or "", ""))


def _call(evidence: Evidence) -> str | None:
    """The call by its name, else by its number."""
    number, architecture = _number(evidence), evidence.fault.architecture if evidence.fault else None
    if number is not None:
        return syscalls.name_of(number, architecture or "x86_64")
    told = field(evidence, ("seccomp",), "syscall")
    return syscalls.name_of(int(told)) if told and told.isdigit() else told


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [*reason(evidence, "said_so", "seccomp")]
    if signal_of(evidence) == "SIGSYS":
        reasons.append(Reason("sigsys", "SIGSYS is sent for a forbidden system call"))
    if _number(evidence) is not None:
        reasons.append(Reason("filtered", f"a seccomp filter refused {_call(evidence)} in {place(evidence)}"))
    if not reasons:
        reasons = [*reason(evidence, "thread_refused", "threads-refused")]
        if reasons:
            reasons.extend(reason(evidence, "works_unconfined", "unconfined-works"))
            reasons.extend(reason(evidence, "runtime_is_old", "old-runtime"))
    yield from nothing_said(reasons)


def sentence(evidence: Evidence) -> str:
    call = _call(evidence)
    if call is None and said(evidence, "threads-refused"):
        return "Where it runs, the call that makes a thread is refused: this container's runtime is older than its image."
    return f"It made a system call that is forbidden here{f': {call}' if call else ''}."


def facts(evidence: Evidence) -> Facts:
    return {"syscall": field(evidence, ("seccomp",), "syscall") or _number(evidence), "call": _call(evidence)}


def remedy(evidence: Evidence) -> Iterator[Step]:
    call = _call(evidence)
    if call is not None:
        yield Step(
            text=f"allow {call} in the profile that the job runs under (Docker: --security-opt seccomp=FILE)"
        )
    if call is None and said(evidence, "threads-refused"):
        yield Step(
            text="update the container runtime: Docker 20.10.10, libseccomp 2.5 and later know clone3:",
            command="docker version --format '{{.Server.Version}}'",
        )
        yield Step(
            text="to be sure, once without the profile:",
            command="docker run --security-opt seccomp=unconfined …",
        )
        return
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
    needs=("mentions", "status", "fault"),
    prior=-3.0,
    weights={
        "said_so": 5.1,
        "sigsys": 4.7,
        "filtered": 2.5,
        "thread_refused": 0.9,
        "works_unconfined": 3.4,
        "runtime_is_old": 2.9,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("forbidden-call", "forbidden-call-with-trap", "text:seccomp"),
    near_misses=("text:thread-limit", "killed-from-outside"),
)
