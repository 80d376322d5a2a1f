"""What the kernel's log remembers: GPU faults (Xid), memory and machine checks, and processes killed for memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lastwords.prevent.checks._check import Check
from lastwords.prevent.finding import Finding, Fix, fine, note
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient

DEVICE = "/dev/kmsg"
MOST_RECORDS = 200_000
LONGEST = 8192
LONGEST_SHOWN = 76
SIGNS = (
    ("xid", re.compile(r"NVRM: Xid .*?: (\d+)")),
    (
        "machine check",
        re.compile(r"\[Hardware Error\]|mce: .*(?:Machine check|Hardware Error)|Machine check events logged"),
    ),
    ("memory error", re.compile(r"EDAC .*\bUE\b|Memory failure:|uncorrected.*memory error", re.IGNORECASE)),
    ("disk error", re.compile(r"I/O error, dev|Buffer I/O error|EXT4-fs error|XFS .*[Cc]orruption")),
    ("memory kill", re.compile(r"Killed process \d+|oom-kill:")),
)
# NVIDIA's list: of these the program is the cause, and not the card.
XIDS_OF_PROGRAMS = frozenset({"13", "31", "43", "45"})


@dataclass(frozen=True, slots=True)
class Event:
    kind: str
    text: str
    number: str | None = None


def measure(patient: Patient) -> tuple[Event, ...] | None:
    del patient
    try:
        descriptor = os.open(DEVICE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None  # post-mortem says so
    try:
        return tuple(events(_records(descriptor)))
    finally:
        os.close(descriptor)


def _records(descriptor: int) -> Iterator[str]:
    for _ in range(MOST_RECORDS):
        record = _next(descriptor)
        if record is None:
            return
        yield record.partition(";")[2].partition("\n")[0]


def _next(descriptor: int) -> str | None:
    """None: nothing more."""
    try:
        return os.read(descriptor, LONGEST).decode("utf-8", "replace")
    except BrokenPipeError:  # the oldest were overwritten while we read
        return ""
    except OSError:
        return None


def events(lines: Iterator[str] | Sequence[str]) -> Iterator[Event]:
    for line in lines:
        for kind, pattern in SIGNS:
            found = pattern.search(line)
            if found:
                yield Event(kind, line.strip()[:300], found[1] if pattern.groups else None)
                break


def judge(found: Sequence[Event], job: Job) -> Iterator[Finding]:
    del job
    broken = [one for one in found if _is_hardware(one)]
    programs = [one for one in found if one.kind == "xid" and not _is_hardware(one)]
    kills = [one for one in found if one.kind == "memory kill" and "Killed process" in one.text]
    if broken:
        kinds = sorted({one.kind for one in broken})
        yield Finding(
            severity="risk",
            says=f"this machine has reported {len(broken)} faults of its hardware since it started ({', '.join(kinds)})",
            measured=tuple(one.text for one in broken[-3:]),
            fixes=(Fix("drain the host and have it looked at", "dmesg --level=err,crit,alert,emerg"),),
            facts={"events": len(broken), "kinds": tuple(kinds)},
        )
    if programs:
        says = f"{len(programs)} GPU faults by programs (Xid {', '.join(sorted({str(one.number) for one in programs}))}) since start"
        yield note(says, *(one.text for one in programs[-2:]))
    if kills:
        says = f"the kernel has killed {len(kills)} processes for memory since this machine started"
        yield note(says, *(one.text[:LONGEST_SHOWN] for one in kills[-2:]), kills=len(kills))
    if not broken and not programs and not kills:
        yield fine("the kernel's log has no hardware fault and no memory kill", DEVICE)


def _is_hardware(event: Event) -> bool:
    if event.kind == "xid":
        return event.number not in XIDS_OF_PROGRAMS
    return event.kind != "memory kill"


CHECK = Check("hardware-history", "faults that the kernel has logged", measure, judge)
