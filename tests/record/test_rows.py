"""The rows of batches, as a Spark worker goes through them: `itertools.chain`, and each row marked."""

from __future__ import annotations

import gc
import traceback
import weakref
from itertools import chain

import pytest

from lastwords.recording import each_row


@pytest.mark.parametrize(
    "batches", [[], [[], []], [[1, 2], [], [3]], [(1, 2), [3]], ["ab", {"k": "v"}, [None]], [range(3)]]
)
def test_they_are_those_of_chain(batches):
    assert list(each_row(batches)) == list(chain.from_iterable(batches))


def test_the_end_stays_the_end():
    rows = each_row([[1]])
    assert next(rows) == 1
    assert next(rows, "end") == next(rows, "end") == "end"


def test_one_that_was_made_without_a_source_is_empty():
    assert list(type(each_row([]))()) == []


def test_an_exception_of_the_source_passes_with_its_own_frames_only():
    def source():
        yield [1]
        raise ValueError("the stream is torn")

    rows = each_row(source())
    assert next(rows) == 1
    with pytest.raises(ValueError, match="torn") as raised:
        next(rows)
    names = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert names == [test_an_exception_of_the_source_passes_with_its_own_frames_only.__name__, "source"]
    assert next(rows, "end") == "end"


@pytest.mark.parametrize("batch", [5, None])
def test_what_is_no_batch_is_refused_as_by_chain(batch):
    with pytest.raises(TypeError, match="not iterable") as ours:
        list(each_row([batch]))
    with pytest.raises(TypeError) as theirs:
        list(chain.from_iterable([batch]))
    assert str(ours.value) == str(theirs.value)


class Row:
    pass


def test_rows_live_no_longer_than_their_batch():
    """A task may go through more rows than there is memory."""
    alive: list[weakref.ref[Row]] = []

    def source():
        for _ in range(3):
            batch = [Row(), Row()]
            alive.extend(map(weakref.ref, batch))
            yield batch
            del batch

    rows = each_row(source())
    for _ in range(3):
        next(rows)
    gc.collect()
    assert [one() is not None for one in alive] == [False, False, True, True]
    del rows
    gc.collect()
    assert not any(one() is not None for one in alive)


def test_a_batch_that_shrinks_meanwhile_ends_there():
    shared = [1, 2, 3]
    rows = each_row([shared, [4]])
    assert next(rows) == 1
    del shared[1:]
    assert list(rows) == [4]


def test_a_source_that_asks_for_its_own_rows_is_told_so():
    def source():
        yield [1]
        next(rows)

    rows = each_row(source())
    assert next(rows) == 1
    with pytest.raises(ValueError, match="already executing"):
        next(rows)


KILLED = """
    import os, time
    import lastwords
    from lastwords.recording import each_row
    for row in each_row([[0, 1, 2], [3, 4], [5, 6]]):
        if row == {slow}:
            time.sleep(0.1)
        if row == {marked}:
            with lastwords.item("something of its own"):
                pass
        if row == 5:
            os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(("slow", "marked"), [(None, None), (1, None), (None, 3)])
def test_a_killed_worker_was_on_its_row(record, slow, marked):
    live = record(KILLED.format(slow=slow, marked=marked)).boxes()[0]["live"]
    current = live["current"]
    assert (current["index"], current["key"], current["phase"]) == (5, None, "run")
    # An item of the job's own takes the place of row 3.
    assert (live["items_begun"], live["items_done"]) == ((6, 5) if marked is None else (7, 5))


def test_a_slow_row_is_among_the_last_items(record):
    box = record(KILLED.format(slow=1, marked=None)).boxes()[0]
    (slow,) = [item for item in box["items"] if item["index"] == 1]
    assert slow["duration_ns"] > 80e6


def test_the_end_of_the_rows_is_idle(record):
    live = record("from lastwords.recording import each_row; list(each_row([[1, 2]]))").boxes()[0]["live"]
    assert live["current"] is None and live["items_done"] == 2
