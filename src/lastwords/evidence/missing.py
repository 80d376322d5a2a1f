"""What would have helped and is not there, each with the way to have it next time."""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.evidence import signals
from lastwords.evidence.model import Evidence, Hang, Missing

RUN = "run the job under `lastwords run -- …`"
HOW_IT_ENDED = "how the process ended (signal or exit code)"


def missing(evidence: Evidence) -> Iterator[Missing]:
    yield from _about_the_end(evidence) if evidence.hang is None else _about_the_hang(evidence.hang)
    if evidence.fault is not None:
        yield from _about_the_fault(evidence)


def _about_the_end(evidence: Evidence) -> Iterator[Missing]:
    status = evidence.status
    if status is None:
        yield Missing(what=HOW_IT_ENDED, how_to_collect=RUN)
        return
    is_kill = signals.family_of(status.signal) == "kill"
    if is_kill and evidence.oom_kills is None:
        yield Missing(what="whether the kernel ran out of memory and killed it", how_to_collect=RUN)
    if is_kill and not evidence.sent_signals and evidence.fault is None:
        yield Missing(
            what=f"who sent {status.signal}",
            how_to_collect="ask the kernel log (`sudo dmesg -T | tail`), the scheduler and whoever shares this host",
        )
    if signals.family_of(status.signal) in ("fault", "abort") and evidence.fault is None:
        yield Missing(what="registers, instruction and stack of the thread that died", how_to_collect=RUN)


def _about_the_hang(hang: Hang) -> Iterator[Missing]:
    if not hang.answered:
        yield Missing(
            what="the native stacks of its threads",
            how_to_collect="none to collect while it is stopped or in state D; else `py-spy dump --native` with more patience",
        )
    if hang.blocked_in is None:
        yield Missing(
            what="the system call that it is blocked in",
            how_to_collect="`cat /proc/PID/syscall` as root, or let the job be traced (kernel.yama.ptrace_scope)",
        )


def _about_the_fault(evidence: Evidence) -> Iterator[Missing]:
    if evidence.native_stack is None:
        yield Missing(
            what="the native stack", how_to_collect="keep the libraries in place until the report is made"
        )
    elif evidence.native_stack.frames[0].function is None:
        yield Missing(
            what="the name of the function that faulted",
            how_to_collect="install the library with its symbols (unstripped, or built with -g)",
        )
    if evidence.python_stack is None:
        yield Missing(
            what="the Python line",
            how_to_collect="none to collect if the thread that died ran no Python code; see the other threads",
        )
