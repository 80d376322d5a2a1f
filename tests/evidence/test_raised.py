"""Which worker and which item an exception came from."""

from __future__ import annotations

import pytest

from lastwords.evidence import Status, from_box
from lastwords.evidence.model import PythonException
from tests.evidence.box_json import BORN_MONOTONIC, SECOND, Shelf, box, identity, live, raised

FAILED = Status(source="parent", exit_code=1)
LATER = BORN_MONOTONIC + 5 * SECOND


def main_box(kind: str, message: str, **changes) -> dict:
    fatal = raised(kind, message, fatal=True, time_ns=LATER, **changes)
    idle = live(current=None, items_begun=0)
    return box(identity=identity(pid=4700, worker=None, role=None), live=idle, exceptions=[fatal])


def worker_box(*exceptions: dict, worker: int = 1) -> dict:
    return box(identity=identity(pid=4710 + worker, worker=worker), exceptions=list(exceptions))


def exception(shelf: Shelf, main: dict, *workers: dict) -> PythonException:
    paths = [shelf.put(f"worker-{number}", worker) for number, worker in enumerate(workers)]
    found = from_box(shelf.put("main", main), FAILED, paths)
    assert found.exception is not None
    if found.exception.item is not None:
        assert found.item == found.exception.item
    return found.exception


def test_a_pools_exception_is_followed_to_its_worker(shelf: Shelf):
    found = exception(
        shelf,
        main_box("ValueError", "bad width"),
        worker_box(raised("ValueError", "another", index=1), worker=0),
        worker_box(raised("ValueError", "bad width", index=5, key="load(5)"), worker=1),
    )
    assert found.item is not None
    assert (found.item.index, found.worker, found.pid) == (5, 1, 4711)
    assert found.surfaced
    assert found.fatal


def test_torch_wraps_the_text_and_names_the_worker(shelf: Shelf):
    message = (
        "Caught ValueError in DataLoader worker process 1.\nOriginal Traceback (most recent call last):\n  …"
    )
    found = exception(
        shelf,
        main_box("ValueError", message),
        worker_box(raised("ValueError", "bad width", index=4), worker=0),
        worker_box(raised("ValueError", "bad width", index=5), worker=1),
    )
    assert found.item is not None
    assert found.item.index == 5


def test_a_cut_message_still_matches(shelf: Shelf):
    long = "x" * 2000
    found = exception(
        shelf, main_box("ValueError", long), worker_box(raised("ValueError", long[:1000] + "…", index=5))
    )
    assert found.item is not None


@pytest.mark.parametrize(
    ("kind", "message"), [("KeyError", "bad width"), ("ValueError", "other"), ("ValueError", "")]
)
def test_another_exception_is_not_taken_for_it(shelf: Shelf, kind: str, message: str):
    found = exception(shelf, main_box("ValueError", "bad width"), worker_box(raised(kind, message, index=5)))
    assert found.item is None
    assert found.pid == 4700


def test_the_latest_of_several_is_the_one(shelf: Shelf):
    found = exception(
        shelf,
        main_box("ValueError", "bad"),
        worker_box(
            raised("ValueError", "bad", index=5, time_ns=BORN_MONOTONIC + 1),
            raised("ValueError", "bad", index=6, time_ns=BORN_MONOTONIC + 2),
        ),
    )
    assert found.item is not None
    assert found.item.index == 6


def test_one_raised_later_is_not_the_cause(shelf: Shelf):
    late = raised("ValueError", "bad", index=5, time_ns=LATER + 1)
    assert exception(shelf, main_box("ValueError", "bad"), worker_box(late)).item is None


def test_kinds_match_by_their_last_name(shelf: Shelf):
    found = exception(
        shelf, main_box("job.BadImage", "bad"), worker_box(raised("__mp_main__.BadImage", "bad", index=5))
    )
    assert found.item is not None


def test_its_own_item_needs_no_search(shelf: Shelf):
    found = exception(
        shelf,
        main_box("ValueError", "bad", index=9),
        worker_box(raised("ValueError", "bad", index=5)),
    )
    assert found.item is not None
    assert found.item.index == 9
    assert found.surfaced == ()


def test_what_a_process_caught_did_not_kill_it(shelf: Shelf):
    caught = box(exceptions=[raised("ValueError", "bad", index=5)])
    assert from_box(shelf.put("a", caught), FAILED).exception is None
