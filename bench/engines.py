"""What recording costs a healthy job on an engine: tasks that do nothing, so that the engine's own work is all there is.

A recorded cluster and a plain one live side by side and take turns of a thousand tasks, ten turns to a job: what
else the machine does meets both. Of CPU, of the driver and all processes below it together: what a busy neighbour takes
does not count. Tasks of a real job take longer, and the ratio is then nearer to one.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench._spark_driver import processor_time
from bench.result import Result
from bench.startup import interval

NAME = "engines"
ROOT = Path(__file__).resolve().parent.parent
TASKS, TURNS = 1_000, 10
LIMIT = 1.02


def run(quick: bool) -> list[Result]:
    pairs = 1 if quick else 5
    found = {"ray": "Ray", "distributed": "Dask"}
    missing = [name for module, name in found.items() if importlib.util.find_spec(module) is None]
    for name in missing:
        print(f"{name} is not installed: not measured", file=sys.stderr)
    return [job(name, pairs) for module, name in found.items() if name not in missing]


def job(name: str, pairs: int) -> Result:
    sums = [take_turns(name, first=n % 2) for n in range(pairs)]
    return Result(
        name=f"{name}: {TASKS * TURNS:,} empty tasks, recorded ({pairs} pairs, {TURNS} turns each)",
        ours=statistics.median(ours for ours, _ in sums) / 1e6,
        peer=statistics.median(peer for _, peer in sums) / 1e6,
        unit="ms of CPU",
        limit=LIMIT,
        interval=interval(sums),
    )


def take_turns(name: str, *, first: int) -> tuple[int, int]:
    """Nanoseconds of CPU of all turns, recorded and plain: the kernel counts in hundredths of a second."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        partners = [
            stack.enter_context(_partner(name, directory, {"LASTWORDS": directory} if is_recorded else {}))
            for is_recorded in (True, False)
        ]
        for partner in partners * 2:
            one_turn(partner)  # workers start, code is warm
        times: tuple[list[int], list[int]] = ([], [])
        for n in range(TURNS):
            for which in (0, 1) if n % 2 == first else (1, 0):
                times[which].append(one_turn(partners[which]))
    return sum(times[0]), sum(times[1])


def one_turn(partner: subprocess.Popen[str]) -> int:
    assert partner.stdin is not None and partner.stdout is not None
    partner.stdin.write("go\n")
    partner.stdin.flush()
    for line in partner.stdout:
        if line.startswith("took "):
            return int(line.split()[1])
    raise RuntimeError(f"the job ended with {partner.wait()}")


@contextmanager
def _partner(name: str, directory: str, variables: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    plain = {
        key: value for key, value in os.environ.items() if not key.startswith(("LASTWORDS", "RAY", "DASK"))
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.engines", name],
        env={**plain, "RAY_AUTH_MODE": "disabled", "LASTWORDS_HOME": directory, **variables},
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


# The jobs themselves: one turn per line on standard input.


def nothing(number: int) -> int:
    return number


def ray_job() -> Callable[[], object]:
    import ray  # type: ignore[import-not-found, unused-ignore]

    ray.init(num_cpus=1, object_store_memory=80 << 20, include_dashboard=False, log_to_driver=False)
    task = ray.remote(nothing)
    return lambda: ray.get([task.remote(number) for number in range(TASKS)])


def dask_job() -> Callable[[], object]:
    from distributed import Client, LocalCluster  # type: ignore[import-not-found, unused-ignore]

    cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    client = Client(cluster)
    atexit.register(cluster.close)
    atexit.register(client.close)
    return lambda: client.gather(client.map(nothing, range(TASKS), pure=False))


def main() -> None:
    turn = {"Ray": ray_job, "Dask": dask_job}[sys.argv[1]]()
    for _ in sys.stdin:
        begun = processor_time()
        turn()
        print("took", processor_time() - begun, flush=True)


if __name__ == "__main__":
    main()
