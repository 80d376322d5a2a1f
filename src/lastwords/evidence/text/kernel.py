"""The kernel log: the memory killer, faults, traps, seccomp, and tasks that do not come back."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.evidence.model import Mention
from lastwords.evidence.text.excerpt import Excerpt
from lastwords.evidence.text.reader import Reader, mention, says

_FAULT = re.compile(
    r"(?P<command>[^\s\[]{1,64})\[(?P<pid>\d{1,9})\]:? segfault at (?P<address>[0-9a-f]{1,16}|\(null\))"
    r"(?: ip\s{1,24}(?P<pc>[0-9a-f]{1,16}|\(null\)))?(?: sp (?P<sp>[0-9a-f]{1,16}))?"
    r"(?: error (?P<error>[0-9a-f]{1,4}))?(?: in (?P<library>[^\s\[]{1,200})\[)?",
    re.IGNORECASE,
)


def _segfaults(excerpt: Excerpt) -> Iterator[Mention]:
    for index in excerpt.with_needle("segfault at", 40):
        found = _FAULT.search(excerpt.lines[index].text)
        if found:
            fields = {name: value for name, value in found.groupdict().items() if value}
            yield mention("fault", excerpt, index, "kernel", {**fields, "signal": "SIGSEGV"})


# pid, uid, tgid, total_vm, rss, page tables, swap entries, oom_score_adj, name; older kernels have one column less.
_TASK = re.compile(r"\[\s{0,8}\d{1,8}\](?:\s{1,16}\d{1,12}){5,7}\s{1,16}-?\d{1,4}\s{1,4}[A-Za-z(]")
FEWEST_TASKS = 3


def _table_of_tasks(excerpt: Excerpt) -> Iterator[Mention]:
    """When memory is out, the kernel prints all processes and what they have: who has cut out a piece of it saw that."""
    rows = [index for index in excerpt.with_needle("] ", 400) if _TASK.search(excerpt.lines[index].text)]
    if len(rows) >= FEWEST_TASKS:
        yield mention("oom-kill", excerpt, rows[0], "kernel", {"by": "the kernel"})


def _longer(excerpt: Excerpt) -> Iterator[Mention]:
    yield from _segfaults(excerpt)
    yield from _table_of_tasks(excerpt)


READER = Reader(
    "kernel",
    (
        says("oom-kill", "killed process", r"\bKilled process (?P<pid>\d{1,9})[ ,(]", by="the kernel"),
        says("oom-kill", "memory cgroup out of memory", by="the kernel, at the cgroup's limit"),
        says("oom-kill", "out of memory", r"out of memory: (?:kill|killed) process (?P<pid>\d{1,9})", by="the kernel"),
        says("oom-kill", "oom-killer", r"invoked oom-killer", by="the kernel"),
        says("oom-kill", "oom-kill:", r"oom-kill:constraint=(?P<constraint>\w{1,40})", by="the kernel"),
        says("oom-kill", "oom_reaper", r"oom_reaper: reaped process (?P<pid>\d{1,9})", by="the kernel"),
        says("oom-kill", "systemd-oomd", r"systemd-oomd.{0,80}kill", by="systemd-oomd"),
        says("oom-kill", "oom-kill|oom killer", r"(?:result|code) ?['=]{1,2}oom-kill|by the OOM killer", by="the kernel"),
        says("oom-kill", "earlyoom", r"earlyoom.{0,80}sending sig", by="earlyoom"),
        says(
            "fault", "trap invalid opcode",
            r"traps: (?P<command>[^\s\[]{1,64})\[(?P<pid>\d{1,9})\] trap invalid opcode ip:(?P<pc>[0-9a-f]{1,16})"
            r"(?:.{0,80} in (?P<library>[^\s\[]{1,200})\[)?",
            signal="SIGILL",
        ),
        says("fault", "trap divide error", r"(?:.{0,80} in (?P<library>[^\s\[]{1,200})\[)?", signal="SIGFPE"),
        says(
            "fault", "general protection",
            r"traps: (?P<command>[^\s\[]{1,64})\[(?P<pid>\d{1,9})\] general protection"
            r"(?:.{0,100} in (?P<library>[^\s\[]{1,200})\[)?",
            signal="SIGSEGV", code="SI_KERNEL",
        ),
        says("seccomp", "type=1326", r"type=1326.{0,300}\bsyscall=(?P<syscall>\d{1,4})"),
        says("seccomp", "seccomp", r"type=SECCOMP|seccomp.{0,60}(?:kill|violation|blocked|denied|audit)"),
        says("io-stall", "blocked for more than", r"task (?P<command>\S{1,64}).{0,20} blocked for more than \d{1,6} sec"),
        says("io-stall", "[<", r"\[<[0-9a-f]{1,16}>\] (?:nfs\w{0,3}_|rpc_wait|fuse_|ceph_|cl_|ll_|gpfs|cifs_|wait_on_page|folio_wait|io_schedule|jbd2_|xfs_log|lookup_slow|autofs_)\w{0,60}\+0x"),
        says("io-stall", "not responding", r"\b(?:nfs|server|lustre|ceph|gpfs|ost)\b.{0,80}not responding"),
        says("cpu-starved", "soft lockup", r"soft lockup - CPU#\d{1,4} stuck"),
        says("cpu-starved", "detected stall", r"rcu.{0,40}detected stall"),
        says("file-damaged", "ext4-fs error", r"EXT4-fs error"),
        says("no-threads", "fork rejected by pids controller", by="the cgroup's pids limit"),
    ),
    _longer,
)  # fmt: skip
