"""What would be known of a death here: core files, the kernel's log, and whether a debugger may look."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass

from lastwords.prevent.checks._check import Check
from lastwords.prevent.finding import Finding, Fix, fine
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient
from lastwords.watch.kernel_log import KernelLog
from lastwords.watch.proc import read_number, read_text

PATTERN = "/proc/sys/kernel/core_pattern"
SCOPE = "/proc/sys/kernel/yama/ptrace_scope"
NOBODY = 3


@dataclass(frozen=True, slots=True)
class PostMortem:
    core_pattern: str
    core_limit: int
    ptrace_scope: int | None
    log_refused: str | None
    is_root: bool


def measure(patient: Patient) -> PostMortem:
    del patient
    log = KernelLog()
    log.close()
    return PostMortem(
        core_pattern=read_text(PATTERN).strip(),
        core_limit=resource.getrlimit(resource.RLIMIT_CORE)[0],
        ptrace_scope=read_number(SCOPE),
        log_refused=log.refused,
        is_root=os.geteuid() == 0,
    )


def judge(found: PostMortem, job: Job) -> Iterator[Finding]:
    del job
    missing, fixes = [], []
    if found.log_refused is not None:
        missing.append("the kernel's log (who was killed for memory)")
        fixes.append(Fix("let it be read, as root on the host", "sysctl kernel.dmesg_restrict=0"))
    if found.ptrace_scope is not None and found.ptrace_scope > (NOBODY - 1 if found.is_root else 0):
        missing.append("other processes' memory for debuggers (gdb -p, py-spy)")
        fixes.append(Fix("allow it while you look", "sysctl kernel.yama.ptrace_scope=0"))
    core = _core(found)
    measured = (
        core,
        f"ptrace scope {found.ptrace_scope if found.ptrace_scope is not None else 'not restricted'} ({SCOPE})",
        f"kernel log {found.log_refused or 'readable'} (/dev/kmsg)",
    )
    if not missing:
        yield fine(f"a death leaves traces here: kernel log readable, {core}", *measured)
        return
    yield Finding(
        severity="note",
        says=f"after a death here nobody may read {' nor '.join(missing)}",
        measured=measured,
        fixes=tuple(fixes),
    )


def _core(found: PostMortem) -> str:
    if found.core_limit == 0 and not found.core_pattern.startswith("|"):
        return "no core files (ulimit -c 0)"
    where = (
        f"a program: {found.core_pattern[1:]}" if found.core_pattern.startswith("|") else found.core_pattern
    )
    return f"core files go to {where}"


CHECK = Check("post-mortem", "what a death would leave", measure, judge)
