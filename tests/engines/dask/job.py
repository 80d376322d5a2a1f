"""One LocalCluster, and a task for each way to end. Prints, line by line, what the client's own code caught."""

import asyncio
import json
import sys
import time

import dask
from deaths import die
from distributed import Client, Future, LocalCluster


def work(how: str) -> str:
    die(how)
    return how


def wait_for_worker(cluster: LocalCluster, dead: set[int]) -> None:
    """A nanny whose worker dies before it has seen it come up starts no other one: Dask's own race, with or without us."""
    while any(one.process is None or not is_up(one.process, dead) for one in cluster.workers.values()):
        time.sleep(0.02)


def is_up(process, dead: set[int]) -> bool:
    return process.status.name == "running" and process.pid is not None and process.pid not in dead


def caught(client: Client, how: str, dead: set[int]) -> None:
    future = client.submit(work, how, key=f"work-{how.replace(' ', '-')}")
    try:
        waited(future, is_hanging=how == "hang")
    except Exception as error:  # noqa: BLE001  # whatever it is, it is printed
        notes = getattr(error, "__notes__", [])
        if hasattr(error, "last_worker"):
            dead.add(error.last_worker.pid)
        print(
            json.dumps({"name": how, "type": type(error).__name__, "message": str(error), "notes": notes}),
            flush=True,
        )


def waited(future: Future, *, is_hanging: bool) -> None:
    """For one that hangs: until somebody knows of it. A timeout that comes before is as it always was."""
    while True:
        try:
            future.result(timeout=1.1 if is_hanging else None)
            return
        except asyncio.TimeoutError as error:  # noqa: PERF203  # it is the point
            if hasattr(error, "__notes__"):
                raise


def main(hows: list[str]) -> None:
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None, memory_limit=LIMIT
        ) as cluster,
        Client(cluster) as client,
    ):
        dead: set[int] = set()
        for how in hows:
            wait_for_worker(cluster, dead)
            caught(client, how, dead)
        events = [event for _, event in client.get_events("lastwords")]
        causes = [event["cause"] for event in events if event["kind"] == "death"]
        hangs = [event["item"] for event in events if event["kind"] == "hang"]
        print(json.dumps({"name": "events", "causes": causes, "hangs": hangs}), flush=True)
        if "hang" in hows:
            client.restart(wait_for_workers=False)


LIMIT = None
if __name__ == "__main__":
    if sys.argv[1] == "--enable":
        import lastwords

        lastwords.enable()
        del sys.argv[1]
    if sys.argv[1] == "--limit":
        LIMIT = "400MiB"
        del sys.argv[1]
    settings = {
        # The first death of a task is its last: the default is four.
        "distributed.scheduler.allowed-failures": int(sys.argv[2]) if len(sys.argv) > 2 else 0,
        # 15 seconds after each death a LocalCluster looks whether there is a worker, and drops its nanny for ever if
        # there is none: on a busy machine that is the moment in which the next death's successor is still starting.
        "distributed.deploy.lost-worker-timeout": "1h",
    }
    with dask.config.set(settings):
        main(sys.argv[1].split(","))
