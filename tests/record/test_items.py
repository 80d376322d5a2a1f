"""Items, exceptions and kills, as the boxes of unchanged jobs have them."""

from __future__ import annotations

import pytest

from lastwords import _native


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((5,), {}, "work(5)"),
        ((5, "a.png"), {"size": (2, 3)}, "work(5, 'a.png', size=(2, 3))"),
        (("x" * 100,), {}, f"work('{'x' * 40}…')"),
        (([0] * 1000,), {}, "work([… 1000 values])"),
        (({"a": 1}, object), {}, "work(<dict>, <type>)"),
        ((10**50, [[[1]]]), {}, "work(<large int>, [[<list>]])"),
        ((1, 2, 3, 4, 5), {}, "work(1, 2, 3, 4, …)"),
    ],
)
def test_a_call_is_one_short_line(args, kwargs, text):
    def work():
        pass

    work.__qualname__ = "work"
    assert _native.describe_call(work, args, kwargs) == text


POOL = """
    import os, sys
    from concurrent.futures import ProcessPoolExecutor
    def work(n):
        if n == 5:
            {dies}
        return n
    if __name__ == "__main__":
        with ProcessPoolExecutor(2) as pool:
            list(pool.map(work, range(8), chunksize={chunksize}))
"""


@pytest.mark.parametrize(("chunksize", "index"), [(1, 5), (4, None)])
def test_a_pools_item_is_the_call(record, chunksize, index):
    ran = record(POOL.format(dies="os.kill(os.getpid(), 9)", chunksize=chunksize))
    # The broken pool ends the other worker wherever that one stands.
    currents = [current for box in ran.boxes() if (current := box["live"]["current"])]
    assert ("work(5)", index, "run") in [(item["key"], item["index"], item["phase"]) for item in currents]


def test_each_marks_by_number_and_passes_everything_on(record):
    ran = record(
        """
        import os, lastwords
        for n, word in enumerate(lastwords.each(iter(["a", "b", "c"]))):
            print(n, word, flush=True)
            if word == "c":
                os.kill(os.getpid(), 9)
        """
    )
    assert ran.stdout == "0 a\n1 b\n2 c\n"
    live = ran.boxes()[0]["live"]
    assert (live["current"]["index"], live["items_done"]) == (2, 2)


def test_memory_that_items_keep_is_shared_out_among_those_between_two_looks(record):
    """Of 2 ms and 4 MB each: every item has its share, and together they have it all, but for those since the last look."""
    ran = record(
        """
        import os, time, lastwords
        kept = []
        for n in lastwords.each(range(41)):
            if n == 40:
                os.kill(os.getpid(), 9)
            kept.append(b"x" * (4 << 20))
            end = time.monotonic() + 0.002
            while time.monotonic() < end:
                pass
        """
    )
    changes = [item["rss_change_kib"] for item in ran.boxes()[0]["items"]]
    assert len(changes) == 40
    told = [change for change in changes[1:] if change]
    assert len(told) >= 30
    assert sorted(told)[len(told) // 2] == pytest.approx(4096, rel=0.2)
    assert sum(told) == pytest.approx(4096 * len(told), rel=0.2)


def test_who_killed_whom_is_noted(record):
    ran = record(POOL.format(dies="os.kill(os.getpid(), 9)", chunksize=1))
    main, *workers = ran.boxes()
    # The broken pool ends the other worker wherever that one stands: on an item, perhaps.
    (killed,) = [box for box in workers if (box["live"]["current"] or {}).get("key") == "work(5)"]
    pid = killed["identity"]["pid"]
    assert ("sent_signal", pid, 9) in [(e["kind"], e["a"], e["b"]) for e in killed["events"]]
    # The pool then stops the others, which is no death of theirs.
    assert {e["b"] for e in main["events"] if e["kind"] == "sent_signal"} == {15}


def test_an_exception_is_recorded_where_it_was_raised_and_where_it_ended_the_job(record):
    ran = record(POOL.format(dies="raise ValueError('negative width')", chunksize=1))
    main, *workers = ran.boxes()
    (fatal,) = main["exceptions"]
    assert (fatal["kind"], fatal["fatal"], main["live"]["exit_code"]) == ("ValueError", True, 1)
    (raised,) = [error for box in workers for error in box["exceptions"]]
    assert (raised["message"], raised["key"], raised["fatal"]) == ("negative width", "work(5)", False)
    assert raised["frames"][0]["function"] == "work"


def test_an_exception_of_a_plain_process(record):
    ran = record(
        """
        import multiprocessing
        def work():
            raise KeyError("width")
        if __name__ == "__main__":
            process = multiprocessing.get_context("fork").Process(target=work, name="reader")
            process.start()
            process.join()
        """
    )
    worker = ran.boxes()[1]
    assert worker["identity"]["role"] == "reader"
    assert worker["exceptions"][0]["kind"] == "KeyError"
    assert worker["live"]["exit_code"] == 1
    assert "lastwords" not in ran.stderr


def test_nested_exceptions_of_strange_classes_do_no_harm(record):
    ran = record(
        """
        class Strange(Exception):
            def __str__(self):
                raise RuntimeError("no text")
        raise Strange
        """
    )
    assert ran.returncode == 1
    (error,) = ran.boxes()[0]["exceptions"]
    assert "cannot be shown" in error["message"]


@pytest.mark.heavy
def test_a_dataloaders_item_is_its_index(record):
    ran = record(
        """
        import os, torch
        from torch.utils.data import DataLoader, Dataset, get_worker_info
        class Rows(Dataset):
            def __len__(self):
                return 8
            def __getitem__(self, n):
                assert get_worker_info().dataset is self
                if n == 5:
                    raise ValueError("negative width")
                return n
        if __name__ == "__main__":
            list(DataLoader(Rows(), batch_size=2, num_workers=2))
        """
    )
    assert "lastwords" not in ran.stderr
    (raised,) = [error for box in ran.boxes() for error in box["exceptions"] if not error["fatal"]]
    assert (raised["index"], raised["frames"][0]["function"]) == (5, "__getitem__")


@pytest.mark.heavy
def test_a_collate_function_that_dies_names_its_batch(record):
    ran = record(
        """
        import os, signal
        from torch.utils.data import DataLoader
        def collate(rows):
            if 5 in rows:
                os.kill(os.getpid(), signal.SIGKILL)
            return rows
        if __name__ == "__main__":
            list(DataLoader(list(range(8)), batch_size=2, num_workers=1, collate_fn=collate))
        """
    )
    (item,) = [box["live"]["current"] for box in ran.boxes() if box["live"]["current"]]
    assert (item["phase"], item["key"]) == ("collate", "batch of 2: 4, 5")
