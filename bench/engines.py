"""What recording costs a healthy job on an engine: tasks that do nothing, so that the engine's own work is all there is.

Two clusters of the same kind differ from each other by up to ten per cent, recorded or not (seen with Ray 2.60), and so do
two turns of one. What our adapters do in a task is two microseconds. So it is measured by itself, in the worker and in the
driver of a running cluster (`bench._hooks`), and set against the CPU that a task takes there: of the driver and all
processes below it together, without what a busy neighbour takes. For information the cluster also works by turns, some with
our adapters in the path of each task and some with the engine's own functions in their place. Tasks of a real job take
longer, and the ratio is then nearer to one.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import _hooks
from bench._spark_driver import processor_time
from bench._switch import switch
from bench.result import Result

NAME = "engines"
ROOT = Path(__file__).resolve().parent.parent
TASKS, WARM = 400, 4
LIMIT = 1.02

Job = tuple[list[int], list[int]]
"""Nanoseconds of CPU of each turn, with our adapters and without: one cluster."""

# What our adapters have put in front of the engine's own, in the path of every task.
IN_WORKER = {
    "Ray": [
        "ray._private.worker:Worker.record_task_log_start",
        "ray._private.worker:Worker.record_task_log_end",
        "ray.exceptions:RayTaskError.__init__",
    ],
    "Dask": [
        "distributed.worker:_run_task_simple",
        "distributed.worker:_run_task_async",
        "distributed.worker:error_message",
    ],
}
IN_DRIVER = {
    "Ray": [
        "ray._private.worker:Worker.get_objects",
        "ray._private.serialization:SerializationContext.deserialize_objects",
    ],
    "Dask": ["distributed.client:Future.result", "distributed.client:Client._handle_task_erred"],
}


def run(quick: bool) -> list[Result]:
    clusters, turns = (1, 8) if quick else (2, 24)
    found = {"ray": "Ray", "distributed": "Dask"}
    missing = [name for module, name in found.items() if importlib.util.find_spec(module) is None]
    for name in missing:
        print(f"{name} is not installed: not measured", file=sys.stderr)
    known = [name for name in found.values() if name not in missing]
    return [result for name in known for result in compared(name, clusters, turns)]


def compared(name: str, clusters: int, turns: int) -> list[Result]:
    jobs, added = zip(*(take_turns(name, turns) for _ in range(clusters)), strict=True)
    ours = statistics.mean(typical(times) for times, _ in jobs) / TASKS
    peer = statistics.mean(typical(times) for _, times in jobs) / TASKS
    done, unit = clusters * turns * TASKS, "µs of CPU a task"
    return [
        Result(
            name=f"{name}: empty tasks, what recording adds (of {done:,}, in {clusters} clusters)",
            ours=(peer + statistics.median(added)) / 1e3,
            peer=peer / 1e3,
            unit=unit,
            limit=LIMIT,
            interval=(1 + min(added) / peer, 1 + max(added) / peer),
        ),
        Result(
            name=f"{name}: empty tasks, by turns (the better half of {turns})",
            ours=ours / 1e3,
            peer=peer / 1e3,
            unit=unit,
            interval=within(list(jobs)),
        ),
    ]


def typical(turns: list[int]) -> float:
    """Of the better half: garbage collections, compilers and neighbours add to a turn, and nothing takes away."""
    return statistics.mean(sorted(turns)[: max(1, len(turns) // 2)])


def within(jobs: list[Job], draws: int = 400) -> tuple[float, float]:
    """The 95 % bootstrap interval of the ratio. Jobs are drawn, and then turns of each: they differ both ways."""
    rng = random.Random(0)
    ratios = []
    for _ in range(draws):
        drawn = [_drawn(rng, job) for job in rng.choices(jobs, k=len(jobs))]
        ratios.append(sum(ours for ours, _ in drawn) / sum(peer for _, peer in drawn))
    ratios.sort()
    return ratios[int(draws * 0.025)], ratios[int(draws * 0.975) - 1]


def _drawn(rng: random.Random, job: Job) -> tuple[float, float]:
    turns = rng.choices(range(len(job[0])), k=len(job[0]))
    return typical([job[0][turn] for turn in turns]), typical([job[1][turn] for turn in turns])


def take_turns(name: str, turns: int) -> tuple[Job, float]:
    """And the nanoseconds that our hooks take of one task."""
    with tempfile.TemporaryDirectory() as directory, _cluster(name, directory) as cluster:
        for with_us in (True, False) * WARM:
            one_turn(cluster, with_us)  # workers start, code is warm
        times: Job = ([], [])
        for turn in range(turns):
            for with_us in (True, False) if turn % 2 else (False, True):
                times[0 if with_us else 1].append(one_turn(cluster, with_us))
        return times, asked(cluster, "hooks")


def one_turn(cluster: subprocess.Popen[str], with_us: bool) -> int:
    return int(asked(cluster, f"{with_us:d}"))


def asked(cluster: subprocess.Popen[str], words: str) -> float:
    assert cluster.stdin is not None and cluster.stdout is not None
    cluster.stdin.write(f"{words}\n")
    cluster.stdin.flush()
    for line in cluster.stdout:
        if line.startswith("took "):
            return float(line.split()[1])
    raise RuntimeError(f"the job ended with {cluster.wait()}")


@contextmanager
def _cluster(name: str, directory: str) -> Iterator[subprocess.Popen[str]]:
    plain = {
        key: value for key, value in os.environ.items() if not key.startswith(("LASTWORDS", "RAY", "DASK"))
    }
    ours = {"RAY_AUTH_MODE": "disabled", "LASTWORDS_HOME": directory, "LASTWORDS": directory}
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.engines", name],
        env={**plain, **ours},
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        try:
            process.communicate(timeout=60)  # the end of its input is the end of its work
        except subprocess.TimeoutExpired:
            process.kill()


# The jobs themselves: one turn per line on standard input, which says whether with us; or "hooks".

Work = tuple[Callable[[], object], Callable[[bool], int], Callable[[], float]]
"""A turn, the switch in its worker, and what our hooks take of a task."""


def nothing(number: int) -> int:
    return number


def ray_job() -> Work:
    import ray  # type: ignore[import-not-found, unused-ignore]

    # Its own, and not another one that happens to run here.
    own = {"address": "local", "num_cpus": 1, "object_store_memory": 80 << 20}
    ray.init(**own, include_dashboard=False, log_to_driver=False)
    task, switcher, hooks = ray.remote(nothing), ray.remote(switch), ray.remote(_hooks.in_ray_worker)
    return (
        lambda: ray.get([task.remote(number) for number in range(TASKS)]),
        lambda with_us: ray.get(switcher.remote(IN_WORKER["Ray"], with_us)),
        lambda: ray.get(hooks.remote()) + _hooks.in_ray_driver(TASKS),
    )


def dask_job() -> Work:
    from distributed import Client, LocalCluster  # type: ignore[import-not-found, unused-ignore]

    cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    client = Client(cluster)
    atexit.register(cluster.close)
    atexit.register(client.close)

    def switch_worker(with_us: bool) -> int:
        (pid,) = client.run(switch, IN_WORKER["Dask"], with_us).values()
        return int(pid)

    def hooks() -> float:
        switch_worker(True)
        return float(client.submit(_hooks.in_dask_worker, pure=False).result())

    return lambda: client.gather(client.map(nothing, range(TASKS), pure=False)), switch_worker, hooks


def main() -> None:
    name = sys.argv[1]
    turn, switch_worker, hooks = {"Ray": ray_job, "Dask": dask_job}[name]()
    workers = set()
    for line in sys.stdin:
        if line.strip() == "hooks":
            print("took", hooks(), flush=True)
            continue
        with_us = bool(int(line))
        switch(IN_DRIVER[name], with_us)
        workers.add(switch_worker(with_us))
        begun = processor_time()
        turn()
        print("took", processor_time() - begun, flush=True)
        if len(workers) > 1:
            raise SystemExit("the tasks went to another worker, which was not switched")


if __name__ == "__main__":
    main()
