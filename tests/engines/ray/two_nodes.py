"""A driver on the first node, tasks and actors on the second: argv has the address and a directory. Prints what it caught."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import ray
from deaths import die

import lastwords
from lastwords.engines.ray import runtime_env

ON_SECOND: dict[str, Any] = {"resources": {"second": 1}, "num_cpus": 0, "max_retries": 0}


@ray.remote(**ON_SECOND)
def work(how: str) -> None:
    die(how)


@ray.remote(**ON_SECOND)
def place() -> dict[str, Any]:
    return {
        "node": ray.get_runtime_context().get_node_id(),
        "host": os.uname().nodename,
        "raylet": os.getppid(),
    }


@ray.remote(**ON_SECOND)
def wait_for_the_end(mark: str) -> None:
    Path(mark).touch()
    die("hang")


@ray.remote(resources={"second": 1}, num_cpus=0)
class Actor:
    def wait_for_the_end(self, mark: str) -> None:
        Path(mark).touch()
        die("hang")

    def work(self, how: str) -> None:
        die(how)


def caught(name: str, ref: ray.ObjectRef, timeout: float | None = None) -> dict[str, Any]:
    try:
        ray.get(ref, timeout=timeout)
        return {}
    except Exception as error:  # noqa: BLE001  # whatever it is, it is printed
        notes = getattr(error, "__notes__", [])
        return {"name": name, "type": type(error).__name__, "message": str(error), "notes": notes}


def tell(said: dict[str, Any]) -> None:
    print(json.dumps(said), flush=True)


def hang() -> None:
    """Until the node's watcher has seen it; every second is often enough to ask."""
    ref = work.remote("hang")
    while not (said := caught("hang", ref, timeout=1.1))["notes"]:
        pass
    tell(said)
    ray.cancel(ref, force=True)


def end_of_node(raylet: int, directory: Path) -> None:
    """Its raylet is killed while a task and an actor work on it."""
    actor: Any = Actor.remote()  # type: ignore[attr-defined]
    marks = [directory / "task", directory / "actor"]
    refs = [wait_for_the_end.remote(str(marks[0])), actor.wait_for_the_end.remote(str(marks[1]))]
    while not all(mark.exists() for mark in marks):
        time.sleep(0.05)
    os.kill(raylet, signal.SIGKILL)
    tell(caught("task of the node", refs[0]))
    tell(caught("actor of the node", refs[1]))


def main(address: str, directory: Path) -> None:
    lastwords.enable()
    ray.init(address=address, runtime_env=runtime_env(hang_after=2), log_to_driver=False)
    second = ray.get(place.remote())
    tell({"name": "place", **second, "own host": os.uname().nodename})
    tell(caught("worker", work.remote("SIGSEGV")))
    actor: Any = Actor.remote()  # type: ignore[attr-defined]
    tell(caught("actor", actor.work.remote("exit 3")))
    tell(caught("exception", work.remote("exception")))
    hang()
    end_of_node(second["raylet"], directory)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
