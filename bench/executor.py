"""lastwords.ProcessPoolExecutor beside the pools that people use, in one run, on the same two workers.

Each measurement is the best of a few rounds, in which all pools take turns: a busy neighbour hits them all. A pool that
is not installed is left out. What a peer cannot do at all (`map` of pebble has no best chunk size of its own) is tried
with several settings, and the best one counts. Functions "of 1 µs" and "of 100 µs" are cut to that on the machine at hand.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from multiprocessing import get_context
from typing import Any

from bench.result import Result
from lastwords import ProcessPoolExecutor

NAME = "executor"
WORKERS = 2
MANY = 64
"""Of which most do nothing, on most machines."""
ROUNDS = 5
CHUNKS = (64, 256, 1024, 4096)
NUMBERS = 1_250_000
"""float64: 10 MB."""
LOOP_VARIABLE = "LASTWORDS_BENCH_LOOPS"
_loops = [int(count) for count in os.environ.get(LOOP_VARIABLE, "100 18000").split()]
"""Turns of a loop that take 1 µs and 100 µs, call included; by the environment, for workers that are not forked."""

Pool = Callable[[], contextlib.AbstractContextManager[Any]]


def same(value: Any) -> Any:
    return value


def microsecond(value: int) -> int:
    """1 µs of counted work: see `calibrate`."""
    for _ in itertools.repeat(None, _loops[0]):
        pass
    return value


def hundred_microseconds(index: int) -> None:
    del index
    for _ in itertools.repeat(None, _loops[1]):
        pass


def calibrate() -> None:
    """By CPU time, of which a busy machine takes less away, from the best of many calls with few turns and with many."""
    for which, work, wanted, calls in ((0, microsecond, 1e3, 2000), (1, hundred_microseconds, 1e5, 20)):
        counts = (_loops[which] // 2, _loops[which] * 2)
        best = dict.fromkeys(counts, float("inf"))
        for count in counts * 15:
            _loops[which] = count
            best[count] = min(best[count], cpu_of(bound(repeat, work, calls)) / calls)
        few, many = counts
        turn = (best[many] - best[few]) / (many - few)
        _loops[which] = max(1, round(few + (wanted - best[few]) / turn))
    os.environ[LOOP_VARIABLE] = " ".join(map(str, _loops))


def repeat(work: Callable[[int], object], times: int) -> None:
    for _ in range(times):
        work(0)


def cpu_of(work: Callable[[], object]) -> int:
    begun = time.process_time_ns()
    work()
    return time.process_time_ns() - begun


def ours(workers: int = WORKERS) -> Any:
    return ProcessPoolExecutor(workers, mp_context=get_context("fork"))


def standard(workers: int = WORKERS) -> Any:
    return futures.ProcessPoolExecutor(workers, mp_context=get_context("fork"))


def peers() -> dict[str, Pool]:
    """Those with `submit`, by name."""
    found: dict[str, Pool] = {"ProcessPoolExecutor": standard}
    with contextlib.suppress(ImportError):
        import loky  # type: ignore[import-untyped]

        found["loky"] = lambda: loky.ProcessPoolExecutor(WORKERS)
    with contextlib.suppress(ImportError):
        import pebble

        found["pebble"] = lambda: Pebble(pebble.ProcessPool(WORKERS))
    return found


class Pebble:
    """pebble's pool under the names that the others have."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def submit(self, work: Callable[..., Any], *args: Any) -> Any:
        return self._pool.schedule(work, args=args)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()
        self._pool.join()


def run(quick: bool) -> list[Result]:
    rounds = 2 if quick else ROUNDS
    calibrate()
    return [
        *submits(rounds, 2_000 if quick else 10_000),
        *maps(rounds, 20_000 if quick else 200_000),
        added(rounds, 20_000 if quick else 200_000),
        *arrays(rounds),
        scaling(rounds, 2_000 if quick else 10_000),
        replacement(5 if quick else 20),
        memory(rounds, WORKERS, limit=1.0),
        *([] if quick else [memory(rounds, MANY, limit=None)]),
    ]


def submits(rounds: int, count: int) -> Iterator[Result]:
    pools = {"ours": ours, **peers()}
    rates = best_of(rounds, {name: bound(submit_rate, pool, count) for name, pool in pools.items()})
    yield from against_each("no-op submit", rates, limit=10)


def against_each(what: str, rates: dict[str, float], limit: float) -> Iterator[Result]:
    """The limit is one against the standard pool; all others are shown."""
    for name, rate in rates.items():
        if name != "ours":
            yield Result(
                name=f"{what}, {name}",
                ours=rates["ours"],
                peer=rate,
                unit="/s",
                limit=limit if name == "ProcessPoolExecutor" else None,
                better="higher",
            )


def submit_rate(pool: Pool, count: int) -> float:
    with pool() as executor:
        for future in [executor.submit(same, index) for index in range(50)]:
            future.result()
        begun = time.perf_counter()
        for future in [executor.submit(same, index) for index in range(count)]:
            future.result()
        return count / (time.perf_counter() - begun)


def maps(rounds: int, count: int) -> Iterator[Result]:
    """Each at its best chunk size, ours too."""
    ways: dict[str, Callable[[], float]] = {}
    for chunk in CHUNKS:
        ways[f"ours {chunk}"] = bound(map_rate, ours, count, chunk)
        ways[f"Pool.map {chunk}"] = bound(pool_map_rate, count, chunk)
        ways[f"joblib {chunk}"] = bound(joblib_rate, count, chunk)
    ways["perfect"] = lambda: bare_rate(count, microsecond)
    rates = best_of(rounds, ways)
    top = {
        name: max(rate for way, rate in rates.items() if way.startswith(name))
        for name in ("ours", "Pool.map", "joblib", "perfect")
    }
    # Twice Pool.map is more than perfect where that one is past half of perfect itself, as it is with real microseconds:
    # the third line says how near we are, and `added` what is ours and not the function's.
    for name, limit in (("Pool.map", 2.0), ("joblib", None), ("perfect", None)):
        if top[name]:
            yield Result(
                name=f"map of 1 µs functions, {name}",
                ours=top["ours"],
                peer=top[name],
                unit="/s",
                limit=limit,
                better="higher",
            )


def map_rate(pool: Pool, count: int, chunk: int) -> float:
    with pool() as executor:
        list(executor.map(microsecond, range(50)))
        begun = time.perf_counter()
        for _ in executor.map(microsecond, range(count), chunksize=chunk):
            pass
        return count / (time.perf_counter() - begun)


def pool_map_rate(count: int, chunk: int) -> float:
    with multiprocessing_pool() as pool:
        pool.map(microsecond, range(50))
        begun = time.perf_counter()
        pool.map(microsecond, range(count), chunksize=chunk)
        return count / (time.perf_counter() - begun)


def added(rounds: int, count: int) -> Result:
    """CPU of all processes for each item of a map, less what the function takes: what the pool itself costs."""
    ways: dict[str, Callable[[], float]] = {}
    for chunk in CHUNKS:
        ways[f"ours {chunk}"] = bound(cpu_of_map, ours, count, chunk)
        ways[f"Pool.map {chunk}"] = bound(cpu_of_map, multiprocessing_pool, count, chunk)
    items = range(count)
    ways["function"] = lambda: -cpu_of(lambda: list(map(microsecond, items))) / count
    costs = {name: -cost for name, cost in best_of(rounds, ways).items()}
    least = {
        name: min(cost for way, cost in costs.items() if way.startswith(name)) - costs["function"]
        for name in ("ours", "Pool.map")
    }
    return Result(
        name="CPU that a map adds to each 1 µs function, Pool.map",
        ours=least["ours"],
        peer=least["Pool.map"],
        unit="ns",
        limit=1.0,
    )


def multiprocessing_pool() -> Any:
    return get_context("fork").Pool(WORKERS)


def cpu_of_map(pool: Pool, count: int, chunk: int) -> float:
    """As less than nothing, for `best_of`. Beginnings and ends of workers are left out."""
    with pool() as executor:
        list(executor.map(microsecond, range(1000), chunksize=100))
        begun = cpu_of_family()
        for _ in executor.map(microsecond, range(count), chunksize=chunk):
            pass
        return (begun - cpu_of_family()) / count


def cpu_of_family() -> int:
    """Nanoseconds, of this process and its children that live."""
    children: set[str] = set()
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children") as file:
            children.update(file.read().split())
    total = time.process_time_ns()
    for pid in children:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/schedstat") as file:
            total += int(file.read().split()[0])
    return total


def joblib_rate(count: int, chunk: int) -> float:
    try:
        from joblib import Parallel, delayed  # type: ignore[import-untyped]
    except ImportError:
        return 0.0
    count //= 10
    with Parallel(n_jobs=WORKERS, batch_size=chunk) as parallel:
        parallel(delayed(microsecond)(index) for index in range(50))
        begun = time.perf_counter()
        parallel(delayed(microsecond)(index) for index in range(count))
        return count / (time.perf_counter() - begun)


def arrays(rounds: int) -> Iterator[Result]:
    try:
        import numpy as np
    except ImportError:
        return
    array: Any = np.arange(NUMBERS, dtype="f8")
    pools = {"ours": ours, **peers()}
    rates = best_of(rounds, {name: bound(array_rate, pool, array) for name, pool in pools.items()})
    yield from against_each("10 MB of numpy there and back", rates, limit=3)


def array_rate(pool: Pool, array: Any) -> float:
    with pool() as executor:
        executor.submit(same, array).result()
        begun = time.perf_counter()
        for _ in range(10):
            executor.submit(same, array).result()
        return 10 / (time.perf_counter() - begun)


def scaling(rounds: int, count: int) -> Result:
    """Against the same number of bare forked processes that do their share and say nothing."""
    ways = {
        "ours": lambda: task_rate(count),
        "perfect": lambda: bare_rate(count, hundred_microseconds),
    }
    rates = best_of(rounds, ways)
    return Result(
        name="100 µs tasks, perfect scaling",
        ours=rates["ours"],
        peer=rates["perfect"],
        unit="/s",
        limit=0.95,
        better="higher",
    )


def task_rate(count: int) -> float:
    with ours() as executor:
        list(executor.map(hundred_microseconds, range(100)))
        begun = time.perf_counter()
        for _ in executor.map(hundred_microseconds, range(count)):
            pass
        return count / (time.perf_counter() - begun)


def bare_rate(count: int, work: Callable[[int], object]) -> float:
    begun = time.perf_counter()
    pids = []
    for _ in range(WORKERS):
        pid = os.fork()
        if not pid:
            for index in range(count // WORKERS):
                work(index)
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    return count / (time.perf_counter() - begun)


def replacement(deaths: int) -> Result:
    """From a worker's SIGKILL to the next task's first line in its replacement; peer: the limit of 20 ms."""
    times = []
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as executor:
        executor.submit(same, 0).result()
        for _ in range(deaths):
            pid = executor.submit(os.getpid).result()
            died = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            while (begun := executor.submit(worker_and_time).result())[0] == pid:
                pass
            times.append(begun[1] - died)
            time.sleep(0.3)  # the death is explained meanwhile: that is not what is measured
    return Result(
        name="a worker's death to the next task in its replacement, fork; limit 20 ms",
        ours=statistics.median(times) * 1e3,
        peer=20.0,
        unit="ms",
        limit=1.0,
    )


def worker_and_time() -> tuple[int, float]:
    return os.getpid(), time.monotonic()


def memory(rounds: int, workers: int, limit: float | None) -> Result:
    """Proportional set size of an idle worker: what it adds to the machine. That depends on whatever else runs there, so
    both take turns, and the median counts.
    """
    found = [(idle_memory(ours, workers), idle_memory(standard, workers)) for _ in range(rounds)]
    return Result(
        name=f"memory of an idle worker, one of {workers}, ProcessPoolExecutor",
        ours=statistics.median(one[0] for one in found),
        peer=statistics.median(one[1] for one in found),
        unit="MB",
        limit=limit,
    )


def idle_memory(pool: Callable[[int], contextlib.AbstractContextManager[Any]], workers: int) -> float:
    with pool(workers) as executor:
        pids = {future.result() for future in [executor.submit(slow_pid) for _ in range(workers * 2)]}
        return sum(map(share_of_memory, pids)) / len(pids) / 1e6


def slow_pid() -> int:
    time.sleep(0.05)
    return os.getpid()


def share_of_memory(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup") as file:
        fields = dict(line.split(":", 1) for line in file.readlines()[1:])
    return int(fields["Pss"].split()[0]) * 1024


def bound(work: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    return lambda: work(*args)


def best_of(rounds: int, ways: dict[str, Callable[[], float]]) -> dict[str, float]:
    found = [{name: way() for name, way in ways.items()} for _ in range(rounds)]
    return {name: max(one[name] for one in found) for name in ways}
