"""Explaining the end of a recorded child, for whoever is its parent: an engine's daemon, agent or nanny.

    begun = postmortem.begin(pid)                        # right after the fork
    ...
    diagnosis = postmortem.examine(pid, wait_status, begun=begun)
    print(postmortem.text(diagnosis))

`lastwords run` does all this by itself; engines have parents of their own, who see a status first and must put the
explanation where the engine's users look.
"""

from __future__ import annotations

import contextlib
import glob
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from lastwords import _native
from lastwords.record.home import home
from lastwords.record.session import VARIABLE
from lastwords.recording import MemoryKills
from lastwords.watch import cgroups, hangs, machine, probes
from lastwords.watch.curves import Points
from lastwords.watch.kernel_log import KernelLog
from lastwords.watch.memory_kills import MemoryKillCounters
from lastwords.watch.proc import read_text
from lastwords.watch.processes import Process
from lastwords.watch.run_directory import SOCKET, forget_box

if TYPE_CHECKING:
    from lastwords.diagnosis import Diagnosis
    from lastwords.evidence import Evidence, Memory, OomKills
    from lastwords.evidence.model import Status, TriedAlone

__all__ = [
    "Begun",
    "Hanging",
    "Retry",
    "begin",
    "box_of",
    "examine",
    "forget",
    "hanging",
    "is_watched",
    "item_age",
    "keep_box",
    "load_all",
    "memory_left",
    "recall",
    "recall_hang",
    "retried",
    "text",
]

_RECENT = 60.0
"""Seconds in which a death was kept that a parent asks about."""
_PATIENCE = 2.0
"""Seconds between a box that is put away and the account of it that can be read. The error of a pool waits that long."""
_GLANCE = 0.005
"""Seconds between two looks at a process that was asked for its stacks."""


@dataclass(frozen=True, slots=True)
class Begun:
    """What has to be known of a child while it lives, to explain its death."""

    pid: int
    machine: machine.Beginning
    kills: MemoryKillCounters


def begin(pid: int) -> Begun:
    _kernel_log()
    kills = MemoryKillCounters()
    kills.begin(pid)
    return Begun(pid, machine.begin(pid), kills)


@cache
def _kernel_log() -> KernelLog:
    """Read from where it stood when the first child began. One descriptor for all of them."""
    return KernelLog()


def run_directory() -> str | None:
    """Where the processes of this run keep their boxes; None: nothing is recorded."""
    return os.environ.get(VARIABLE)


def is_watched() -> bool:
    """Whether a `lastwords run` takes care of the boxes of this run, and shows and keeps its deaths."""
    directory = run_directory()
    return directory is not None and os.path.exists(os.path.join(directory, SOCKET))


def box_of(pid: int) -> str | None:
    """The newest black box of the process with this number."""
    directory = run_directory()
    if directory is None:
        return None
    found = glob.glob(os.path.join(glob.escape(directory), f"{pid}-*.box"))
    kept = os.path.join(directory, _kept_name(pid))
    return max(found) if found else kept if os.path.exists(kept) else None


def keep_box(pid: int) -> None:
    """Lets a child's box be found by `box_of` also when a `lastwords run` has put it away already."""
    box, directory = box_of(pid), run_directory()
    if box is not None and directory is not None and is_watched():
        os.link(box, os.path.join(directory, _kept_name(pid)))


def forget(pid: int) -> None:
    """A child ended as it should: its box is of no use, and its number may be used again."""
    directory = run_directory()
    if directory is None:
        return
    kept = os.path.join(directory, _kept_name(pid))
    if os.path.exists(kept):
        os.unlink(kept)
    elif not is_watched() and (box := box_of(pid)) is not None:
        forget_box(box)
        with contextlib.suppress(OSError):  # the last one out; others have boxes there, mostly
            os.rmdir(directory)


def _kept_name(pid: int) -> str:
    return f"{pid}.kept"


def examine(  # noqa: PLR0913  # all but two by name
    pid: int,
    wait_status: int | None,
    *,
    begun: Begun | None = None,
    peak_memory: int | None = None,
    keep: bool = True,
    box: str | None = None,
    before: MemoryKills = (),
    died: float | None = None,
) -> Diagnosis:
    """Why the child ended so. `wait_status` is what wait(2) gave (None: nobody was told), `peak_memory` what it said of
    its size in bytes.

    With `keep` the death is put into the store of this host, unless a `lastwords run` does that. For parents whose
    workers have a run of their own (`recording.RunOfWorkers`): where its `box` lies, the `recording.memory_kills`
    from before, and when it `died`, in seconds since 1970.
    """
    from lastwords.diagnosis import diagnose
    from lastwords.evidence import Process as Who
    from lastwords.evidence import from_status
    from lastwords.evidence.machine import with_machine
    from lastwords.evidence.status import from_wait_status

    status = from_wait_status(wait_status, "parent") if wait_status is not None else None
    is_of_this_run, box = box is None, box or box_of(pid)
    now, memory, kills = died or time.time(), _memory(peak_memory), _kills(begun) or _kills_since(before)
    evidence = _read_box(box, status, now, kills) if box is not None else None
    if evidence is not None:
        evidence = _with_peak(evidence, memory)
    elif is_of_this_run and is_watched() and (recalled := recall(pid)) is not None:
        return recalled
    else:
        box = None
        who = Who(source="its parent", pid=pid, parent=os.getpid())
        evidence = from_status(status, process=who, time=now, memory=memory, oom_kills=kills)
    if begun is not None:
        evidence = with_machine(evidence, machine.look(pid, begun.machine, _kernel_log()))
        evidence = _without_the_wrong_counter(evidence)
    return diagnose(_kept(evidence, box) if keep else evidence)


@dataclass(frozen=True, slots=True)
class Retry:
    """What became of a child's item when it was run again, as the first thing in a fresh worker."""

    outcome: str
    """`endings.PASSED`: that worker lived. `SAME`, `OTHERWISE`: it died, too."""
    tries: int
    others: int | None = None
    """Workers that were there beside the child when it died."""
    others_then: int | None = None
    """Of these, those that had something to do when the try began."""


def retried(diagnosis: Diagnosis, retry: Retry, *, is_that_try: bool = False) -> Diagnosis:
    """The same death, explained anew with what became of its item, which is added to the death that was kept.

    `is_that_try`: it is the death of the try itself.
    """
    import msgspec

    from lastwords.diagnosis import diagnose
    from lastwords.evidence.model import TriedAlone

    found = TriedAlone(
        source="whoever started its worker",
        outcome=retry.outcome,
        tries=retry.tries,
        others=retry.others,
        others_then=retry.others_then,
        is_that_try=is_that_try,
    )
    _add(diagnosis.evidence, found)
    return diagnose(msgspec.structs.replace(diagnosis.evidence, tried_alone=found))


def _add(evidence: Evidence, found: TriedAlone) -> None:
    """To the death in the store; it stays as it was where that fails."""
    from lastwords.evidence import alone
    from lastwords.evidence.store import NoSuchDeath, Store

    directory, process = run_directory(), evidence.process
    with contextlib.suppress(OSError, NoSuchDeath):
        if evidence.id:
            Store(home()).learn(evidence.id, found)
        elif directory is not None and is_watched() and process is not None:
            alone.leave(
                directory, alone.Note(pid=process.pid, time=evidence.time or time.time(), found=found)
            )


def recall(pid: int) -> Diagnosis | None:
    """What `lastwords run` has found out about a child whose box it has put away. None: it was ended because it hung, or
    nothing is known.
    """
    from lastwords.diagnosis import diagnose

    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        for evidence in _kept_since(time.time() - _RECENT):
            if evidence.process is not None and evidence.process.pid == pid:
                return diagnose(evidence) if evidence.hang is None else None
        time.sleep(10 * _GLANCE)
    return None


def recall_hang(is_about: Callable[[Evidence], bool]) -> Diagnosis | None:
    """What `lastwords run --hang-after` has found out about a process of this run that hangs, the newest; None: nothing,
    or nobody looks after this run. Cheap as long as this run has had no deaths.
    """
    directory = run_directory()
    if directory is None or not is_watched():
        return None
    began = os.stat(os.path.join(directory, SOCKET)).st_mtime
    found = [one for one in _kept_since(began) if one.hang is not None and is_about(one)]
    if not found:
        return None
    from lastwords.diagnosis import diagnose

    return diagnose(max(found, key=lambda one: one.time or 0.0))


def _kept_since(moment: float) -> Iterator[Evidence]:
    """By the watcher of this run, whose home the run's directory is in."""
    directory = run_directory()
    if directory is None:
        return
    home = os.path.dirname(os.path.dirname(directory))
    with contextlib.suppress(OSError), os.scandir(os.path.join(home, "deaths")) as entries:
        names = [entry.name for entry in entries if entry.stat().st_mtime > moment]
        if names:
            from lastwords.evidence.store import NoSuchDeath, Store

            for name in names:
                with contextlib.suppress(NoSuchDeath):  # it is being written
                    yield Store(home).get(name)


def _read_box(box: str, status: Status | None, now: float, kills: OomKills | None) -> Evidence | None:
    """None: the worker died before it could begin one, the disk was full, or a `lastwords run` has put it away."""
    from lastwords.evidence import UnreadableBox, from_box

    try:
        # Held open, as it is read more than once and may be put away in between: a death that was read
        # on a busy machine had its item, and no native stack.
        with open(box, "rb") as held:
            name = f"/proc/self/fd/{held.fileno()}"
            return from_box(name, status, _boxes_of_others(box), time=now, oom_kills=kills)
    except (UnreadableBox, OSError):
        return None


def load_all() -> None:
    """Imports what explaining needs, for those who must choose the moment: nobody may fork in the middle of it."""
    from lastwords.diagnosis import diagnose
    from lastwords.evidence import alone
    from lastwords.evidence.hang import from_hang
    from lastwords.evidence.store import Store

    del alone, diagnose, from_hang, Store


def _kept(evidence: Evidence, box: str | None) -> Evidence:
    from lastwords.evidence.store import Store

    if is_watched():
        return evidence
    try:
        return Store(home()).put(evidence, box)
    except OSError:  # nowhere to keep it: it is explained all the same
        return evidence


def _boxes_of_others(box: str) -> list[str]:
    """Those of the parent, which knows whom it sent a signal."""
    own = box_of(os.getppid()) or box_of(os.getpid())
    return [own] if own is not None and own != box else []


def _memory(peak: int | None) -> Memory | None:
    from lastwords.evidence import Memory

    return Memory(source="ru_maxrss of wait4", peak=peak) if peak else None


def _with_peak(evidence: Evidence, memory: Memory | None) -> Evidence:
    import msgspec

    if memory is None:
        return evidence
    if evidence.memory is None:
        return msgspec.structs.replace(evidence, memory=memory)
    return msgspec.structs.replace(
        evidence, memory=msgspec.structs.replace(evidence.memory, peak=evidence.memory.peak or memory.peak)
    )


def _kills(begun: Begun | None) -> OomKills | None:
    from lastwords.evidence import OomKills

    found = begun.kills.end(begun.pid) if begun is not None else None
    if found is None:
        return None
    source = "its cgroup's oom_kill counter"
    return OomKills(source=source, before=found.before, after=found.after, cgroup=found.cgroup)


def _without_the_wrong_counter(evidence: Evidence) -> Evidence:
    """The kernel's own line about this process names the group in which it was killed. A counter that stayed is then of
    a group that the process had left since it began: engines move workers that live already into groups of their own.
    """
    import msgspec

    kills = evidence.oom_kills
    lines = (evidence.machine.kernel_log if evidence.machine is not None else None) or ()
    was_killed = any(one.kind == "memory kill" and one.cgroup is not None for one in lines)
    if kills is None or kills.after > kills.before or not was_killed:
        return evidence
    return msgspec.structs.replace(evidence, oom_kills=None)


def _kills_since(before: MemoryKills) -> OomKills | None:
    """In the nearest group in which somebody was killed meanwhile, or else the nearest that can be read."""
    from lastwords.evidence import OomKills

    source = "its cgroup's oom_kill counter"
    counts = ((group, count, _native.oom_kills_in(group, version)) for group, version, count in before)
    known = [
        OomKills(source=source, before=count, after=now, cgroup=group)
        for group, count, now in counts
        if now is not None
    ]
    return next((one for one in known if one.after > one.before), known[0] if known else None)


def memory_left() -> tuple[int, int] | None:
    """Bytes that this process and its children may still use, of how many: in the control group that has the least
    left, or the whole machine.
    """
    groups = cgroups.memory(cgroups.groups_of(os.getpid()))
    # Files that were read once count as used, and are the first that the kernel drops.
    found = [
        (one.limit - one.used + cgroups.keyed(f"{one.path}/memory.stat").get("inactive_file", 0), one.limit)
        for one in groups
        if one.limit is not None and one.used is not None
    ]
    lines = (line.split() for line in read_text("/proc/meminfo").splitlines())
    machine_has = {line[0]: int(line[1]) << 10 for line in lines if line[0] in ("MemAvailable:", "MemTotal:")}
    if len(machine_has) == 2:
        found.append((machine_has["MemAvailable:"], machine_has["MemTotal:"]))
    return min(found, default=None)


# Children that hang.


@dataclass(frozen=True, slots=True)
class Hanging:
    diagnosis: Diagnosis
    started_ns: int
    """When its item began: the same one need not be explained twice."""


def item_age(pid: int, *, box: str | None = None) -> tuple[float, int] | None:
    """For how many seconds the child has been on its item, and when that began; None: it is on none."""
    box = box or box_of(pid)
    state = probes.state_of(Process(pid=pid, own_pid=pid, box=box)) if box is not None else None
    if state is None or not state.started_ns:
        return None
    return (time.monotonic_ns() - state.started_ns) / 1e9, state.started_ns


def hanging(pid: int, after: float, *, keep: bool = True, box: str | None = None) -> Hanging | None:
    """Asks a child whose item takes longer than `after` seconds where it stands. None: it has got on meanwhile."""
    box = box or box_of(pid)
    if box is None:
        return None
    found: list[hangs.Hung] = []
    answers: list[Diagnosis] = []

    def on_hang(hung: hangs.Hung) -> bool:
        found.append(hung)
        answers.append(_explained(hung, keep=keep))
        return True

    process = Process(pid=pid, own_pid=pid, box=box, pidfd=os.pidfd_open(pid))
    looking = hangs.Hangs(hangs.Policy(after), on_hang, _no_points)
    until = time.monotonic() + 2 * hangs.PATIENCE_NS / 1e9
    try:
        while not answers and time.monotonic() < until:
            looking.look([process])
            time.sleep(_GLANCE)
    finally:
        process.close()
    return Hanging(answers[0], found[0].started_ns) if answers else None


def _no_points(_: Process) -> Points:
    return ()


def _explained(hung: hangs.Hung, *, keep: bool) -> Diagnosis:
    from lastwords.diagnosis import diagnose
    from lastwords.evidence.hang import from_hang

    evidence = from_hang(hung)
    return diagnose(_kept(evidence, None) if keep else evidence)


# Saying it.


def text(
    diagnosis: Diagnosis,
    *,
    subject: str | None = None,
    item: str | None = None,
    steps: Iterable[tuple[str, str | None]] = (),
    context: Iterable[str] = (),
    brief: bool = False,
) -> str:
    """The panel without colours, for a message of another program.

    `subject` and `item` are the engine's own words for the process and for what it worked on; `steps` (text and
    command) and `context` are added to those of the diagnosis. `brief` is for messages beside which the whole panel
    is shown, too.
    """
    import msgspec

    from lastwords.causes import Step
    from lastwords.show.lines import line
    from lastwords.show.report import headline, report
    from lastwords.show.text import WIDTH, lay_out, lay_out_briefly, paint

    made = report(diagnosis)
    who = headline(_renamed(diagnosis.evidence, subject)) if subject is not None else made.headline
    made = msgspec.structs.replace(
        made,
        headline=f"{who} on {item}" if item is not None else who,
        steps=(*made.steps, *(Step(text=words, command=command) for words, command in steps)),
        context=(*made.context, *map(line, context)),
        more=(),
    )
    return paint((lay_out_briefly if brief else lay_out)(made, WIDTH), colour=False)


def _renamed(evidence: Evidence, subject: str) -> Evidence:
    import msgspec

    process = evidence.process
    if process is not None:
        process = msgspec.structs.replace(process, role=subject, worker=None, rank=None)
    return msgspec.structs.replace(evidence, process=process, item=None)
