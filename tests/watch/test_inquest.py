from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lastwords.watch import inquest as inquest_module
from lastwords.watch.announcements import Announcement
from lastwords.watch.ending import Ended
from lastwords.watch.inquest import MOST_RELATED, TOGETHER, Inquest
from lastwords.watch.last_state import LastState, Raised
from lastwords.watch.processes import Process, Processes
from lastwords.watch.run_directory import RunDirectory
from lastwords.watch.status import Status

GONE = 1 << 30
"""A number that no process has."""


def ended(box: Path, raw: int, *raised: Raised, ancestors: tuple[int, ...] = ()) -> Ended:
    box.touch()
    process = Process(pid=9, own_pid=9, box=str(box), ancestors=ancestors)
    return Ended(process, Status(raw, "parent"), LastState(pid=9, raised=raised), time=1.0)


class Listener:
    def __init__(self, *, keeps: bool = True) -> None:
        self.keeps = keeps
        self.related: list[Sequence[str]] = []

    def __call__(self, death: Ended, related: Sequence[str]) -> bool:
        self.related.append(related)
        return self.keeps


def test_boxes_stay_only_while_somebody_needs_them(tmp_path: Path) -> None:
    directory = RunDirectory(str(tmp_path))
    place = Path(directory.path)
    inquest = Inquest(directory, Processes(watcher=1), Listener())
    healthy = ended(place / "1-1.box", 0)
    raised = ended(place / "2-1.box", 0, Raised("ValueError", "", fatal=False, time_ns=1))
    death = ended(place / "3-1.box", signal.SIGKILL)
    inquest.hear([healthy, raised, death])
    assert [Path(box).name for box in directory.boxes()] == ["2-1.box", "3-1.box"]
    inquest.explain_one()
    assert [Path(box).name for box in directory.boxes()] == ["2-1.box"]
    directory.close(keep_boxes=False)


def test_a_death_that_could_not_be_kept_keeps_its_box(tmp_path: Path) -> None:
    directory = RunDirectory(str(tmp_path))
    inquest = Inquest(directory, Processes(watcher=1), Listener(keeps=False))
    death = ended(Path(directory.path) / "3-1.box", signal.SIGKILL)
    inquest.hear([death])
    inquest.explain_one()
    assert inquest.unexplained == [death]
    assert len(directory.boxes()) == 1
    directory.close(keep_boxes=False)


def test_related_boxes_are_few_and_the_ancestors_come_first(tmp_path: Path) -> None:
    directory = RunDirectory(str(tmp_path))
    place = Path(directory.path)
    listener = Listener()
    inquest = Inquest(directory, Processes(watcher=1), listener)
    for number in range(100, 200):
        (place / f"{number}-{number}.box").touch()
    inquest.hear([ended(place / "9-500.box", signal.SIGKILL, ancestors=(101,))])
    inquest.explain_one()
    (related,) = listener.related
    assert len(related) == MOST_RELATED
    assert [Path(box).name for box in related[:3]] == ["101-101.box", "199-199.box", "198-198.box"]
    directory.close(keep_boxes=False)


@pytest.mark.parametrize(
    ("is_dying", "raw", "is_told"),
    [(True, signal.SIGKILL, True), (False, signal.SIGKILL, False), (True, 1 << 8, False)],
    ids=["it was dying", "it was killed later", "it ended by itself"],
)
def test_a_parent_that_takes_its_time_to_be_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_dying: bool, raw: int, is_told: bool
) -> None:
    """The thread of it that forked was gone, and its worker told and dead, long before its last thread was."""
    monkeypatch.setattr(inquest_module, "is_dying", lambda pid: is_dying and pid == GONE)
    directory, living = RunDirectory(str(tmp_path)), Processes(watcher=1)
    found: list[Ended] = []
    inquest = Inquest(directory, living, lambda death, _: found.append(death) or True)
    parent, _ = living.add(Announcement(GONE, GONE, "", None), None)
    worker = ended(Path(directory.path) / "9-1.box", 0, ancestors=(GONE,))
    state = LastState(pid=9, role="DataLoader worker", worker=0, has_item=True)
    inquest.hear([replace(worker, state=state, status=Status(0, "proc"), noticed_ns=10**9)])
    living.remove(parent)
    later = 10**9 + int(2 * TOGETHER * 1e9)
    inquest.hear([Ended(parent, Status(raw, "parent"), LastState(pid=GONE), time=2.0, noticed_ns=later)])
    inquest.explain_one()
    assert (found[0].parent_end is not None) == is_told
    directory.close(keep_boxes=False)
