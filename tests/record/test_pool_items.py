"""The tasks of `concurrent.futures`: what a worker is said to work on, and that the pool is the pool it was."""

from __future__ import annotations

import concurrent.futures.process
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from lastwords.record.adapters import concurrent_futures

BEGIN = textwrap.dedent("""
    import json, multiprocessing, os, sys, time
    from concurrent.futures import ProcessPoolExecutor
    from pathlib import Path
    from lastwords import _native

    class Deadly:
        def __reduce__(self):
            os.kill(os.getpid(), 9)

    def work(n):
        if n == 5:
            os.kill(os.getpid(), 9)
        if n == 6:
            return Deadly()
        if n == 7:
            try:
                raise ValueError("negative width")
            except ValueError as error:
                frame = error.__traceback__.tb_frame
                while frame is not None:  # as those do who show a traceback with its variables
                    frame.f_locals
                    frame = frame.f_back
                raise
        return n
""")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize(("number", "phase"), [(5, "run"), (6, "send")])
def test_a_call_is_the_item_until_its_result_is_sent(record, method, number, phase):
    ran = record(
        BEGIN
        + textwrap.dedent(f"""
        if __name__ == "__main__":
            context = multiprocessing.get_context("{method}")
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                print([pool.submit(work, n).result() for n in (1, 2, 3)], flush=True)
                pool.submit(work, n={number}).result()
        """)
    )
    assert ran.stdout == "[1, 2, 3]\n"
    (live,) = [box["live"] for box in ran.boxes() if box["live"]["current"]]
    item = live["current"]
    assert (item["key"], item["index"], item["phase"]) == (f"work(n={number})", 3, phase)
    assert (live["items_begun"], live["items_done"]) == (4, 3)


@pytest.mark.parametrize(
    "task",
    ["pool.submit(work, 1)", "pool.submit(work, 7)", "pool.submit(sum, iter([1, 2]))"],
    ids=["returns", "fails", "takes an iterator"],
)
def test_a_worker_that_waits_has_no_item(record, task):
    ran = record(
        BEGIN
        + textwrap.dedent(f"""
        def of_worker(pool):
            (pid,) = pool._processes
            (path,) = Path(os.environ["LASTWORDS"]).glob(f"{{pid}}-*.box")
            return json.loads(_native.read_box(path))["live"]

        if __name__ == "__main__":
            with ProcessPoolExecutor(1) as pool:
                {task}.exception()
                until = time.monotonic() + 60
                while of_worker(pool)["current"] and time.monotonic() < until:
                    time.sleep(0.001)
                print(of_worker(pool)["current"], of_worker(pool)["items_done"])
        """)
    )
    assert ran.stdout == "None 1\n", ran.stderr


def test_each_call_of_a_chunk_is_an_item(record):
    ran = record(
        BEGIN
        + textwrap.dedent("""
        if __name__ == "__main__":
            with ProcessPoolExecutor(1) as pool:
                print(list(pool.map(work, range(4), chunksize=2)), list(pool.map(work, [1])))
        """)
    )
    assert ran.stdout == "[0, 1, 2, 3] [1]\n", ran.stderr
    (worker,) = [box for box in ran.boxes() if box["items"]]
    # The results of a chunk go back together.
    keys = [
        "work(0)",
        "work(1)",
        "the results of a chunk",
        "work(2)",
        "work(3)",
        "the results of a chunk",
        "work(1)",
    ]
    assert [item["key"] for item in worker["items"]] == keys


def test_a_pool_says_what_it_says_without_us(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(
        "from concurrent.futures import ProcessPoolExecutor\n"
        "def work(n):\n    return 1 / n\n"
        "if __name__ == '__main__':\n"
        "    with ProcessPoolExecutor(1) as pool:\n"
        "        print(list(pool.map(work, [1, 2], chunksize=2)), pool.submit(pow, 2, exp=3).result())\n"
        "        print(type(pool.submit(lambda: 0).exception()))\n"
        "        bad = pool.submit(work, 0)\n"
        "        bad.exception()\n"  # a result that is waited for is raised from another line than one that is there
        "        bad.result()\n"
    )
    plain, recorded = (said(script, variables) for variables in ({}, {"LASTWORDS": str(tmp_path)}))
    assert recorded == plain
    assert "in work\n    return 1 / n" in plain[2]


def said(script: Path, variables: dict[str, str]) -> tuple[int, str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "LASTWORDS"}
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment | {"PYTHONHASHSEED": "0"} | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


STATE: dict[str, dict[str, Any]] = {
    "_CallItem": {"work_id": 3, "fn": len, "args": ("abc",), "kwargs": {"a": 1}},
    "_ResultItem": {"work_id": 3, "exception": None, "result": [1], "exit_pid": 17},
}


@pytest.mark.parametrize("name", STATE)
@pytest.mark.parametrize("sender", ["plain", "ours"])
@pytest.mark.parametrize("receiver", ["plain", "ours"])
def test_either_side_may_be_without_us(monkeypatch, name, sender, receiver):
    """A pool may be older than `lastwords.enable()`, on one of its sides."""
    module = concurrent.futures.process
    plain = {name: getattr(module, name) for name in STATE}
    monkeypatch.setattr(module._ExceptionWithTraceback, "__init__", module._ExceptionWithTraceback.__init__)
    for known, kind in plain.items():
        monkeypatch.setattr(module, known, kind)
    concurrent_futures.adapt(module)
    kinds = {"plain": plain, "ours": {name: getattr(module, name) for name in STATE}}

    monkeypatch.setattr(module, name, kinds[sender][name])
    sent = pickle.dumps(kinds[sender][name](**STATE[name]))
    assert b"lastwords" not in sent
    monkeypatch.setattr(module, name, kinds[receiver][name])
    received = pickle.loads(sent)
    assert {field: getattr(received, field) for field in STATE[name]} == STATE[name]


def test_a_task_of_another_shape_is_left_alone():
    class _CallItem:
        def __init__(self, work_id, fn, args, kwargs, priority):
            pass

    module = concurrent.futures.process
    with pytest.raises(TypeError, match="priority"):
        concurrent_futures.check(_CallItem, concurrent_futures.CALL)
    concurrent_futures.check(module._ResultItem, concurrent_futures.RESULT)


@pytest.mark.parametrize(
    ("task", "key", "index"),
    [
        ("apply_async(die, (1,), {'b': 2})", "die(1, b=2)", 0),
        ("map_async(die, [(1, 2)])", "die((1, 2))", None),
        ("starmap_async(die, [(1, 2)])", "die(1, 2)", None),
        ("map_async(die, range(4), chunksize=2)", "chunk 0 of 2 calls, the first die(0)", None),
        ("imap(die, [7])", "die(7)", 0),
    ],
)
def test_the_task_of_a_multiprocessing_pool_is_its_item(record, task, key, index):
    ran = record(
        f"""
        import multiprocessing, os
        from multiprocessing.connection import wait

        def die(*args, **kwargs):
            os.kill(os.getpid(), 9)

        if __name__ == "__main__":
            with multiprocessing.Pool(1) as pool:
                first = pool._pool[0]
                assert pool.apply(max, (1, 2)) == 2
                pool.{task}
                wait([first.sentinel])
        """
    )
    # The pool has started another worker by then, which may have taken the next chunk, and died.
    killed = next(box["live"] for box in ran.boxes() if box["live"]["current"])
    item = killed["current"]
    assert (item["key"], item["phase"], killed["items_done"]) == (key, "run", 1), ran.stderr
    assert item["index"] == index
