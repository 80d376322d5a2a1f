"""For benchmarks of engines: what our adapters add to one task, where they do it, in nanoseconds of CPU.

Called in a worker or driver of a running cluster. The engine's own function beside which a hook stands is run with it and
without, by turns, or is stood in for by one that does nothing, where it would tell the cluster of tasks that there are not.
"""

# ruff: noqa: SLF001  # a hook is no public function, and neither is what it stands beside

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

CALLS, TURNS = 500, 40


def difference(ours: Callable[[], object], plain: Callable[[], object]) -> float:
    """Of one call. The better half of the turns: nothing takes CPU away from one."""
    times: tuple[list[int], list[int]] = ([], [])
    for _ in range(TURNS):
        for found, call in zip(times, (ours, plain), strict=True):
            begun = time.thread_time_ns()
            for _ in range(CALLS):
                call()
            found.append(time.thread_time_ns() - begun)
    better = [statistics.mean(sorted(found)[: TURNS // 2]) for found in times]
    return (better[0] - better[1]) / CALLS


def in_dask_worker() -> float:
    from dask._task_spec import Task  # type: ignore[import-not-found, unused-ignore]
    from distributed import worker  # type: ignore[import-not-found, unused-ignore]

    ours, task = worker._run_task_simple, Task("nothing-0123456789abcdef", int, 1)
    return difference(lambda: ours(task, {}, 0.0), lambda: ours.__wrapped__(task, {}, 0.0))


def in_ray_worker() -> float:
    """Both ends of a task. What Ray does there itself it tells its node."""
    import ray._private.worker as real  # type: ignore[import-not-found, unused-ignore]

    from lastwords.engines import ray as adapter

    worker, context = real.global_worker, real.ray.get_runtime_context()
    task = real.ray.TaskID(bytes.fromhex(context.get_task_id()))

    class Plain:
        core_worker, worker_id = worker.core_worker, worker.worker_id

        def begin(self, task: Any, attempt: int) -> None: ...
        def end(self, task: Any, attempt: int) -> None: ...

    class Ours(Plain): ...

    for name, hook in (("begin", adapter._begin), ("end", adapter._end)):
        adapter._before(Ours, name, hook)
    plain, ours = Plain(), Ours()
    return difference(
        lambda: (ours.begin(task, 0), ours.end(task, 0)), lambda: (plain.begin(task, 0), plain.end(task, 0))
    )


def in_ray_driver(tasks: int) -> float:
    """Of each result that a `ray.get` of so many reads."""
    from lastwords.engines import ray as adapter

    results: list[object] = list(range(tasks))

    class Context:
        def deserialize_objects(self, _serialized: Any, _refs: Any) -> list[object]:
            return results

    plain = Context.deserialize_objects
    adapter._adapt_reader(SimpleNamespace(SerializationContext=Context))
    ours = Context.deserialize_objects
    one = Context()
    return difference(lambda: ours(one, None, results), lambda: plain(one, None, results)) / tasks
