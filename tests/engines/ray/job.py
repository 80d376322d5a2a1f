"""One Ray, and a task or an actor for each way to end. Prints, line by line, what the driver's own code caught."""

import json
import sys
from typing import Any

import ray
from deaths import die

OPTIONS: dict[str, Any] = {
    "address": "local",  # else Ray joins whatever other Ray happens to run on this machine, or refuses to
    "num_cpus": 2,
    "object_store_memory": 80 << 20,
    "include_dashboard": False,
}


@ray.remote(max_retries=0)
def work(how: str) -> None:
    die(how)


@ray.remote(max_retries=1)
def work_twice(how: str) -> None:
    die(how)


@ray.remote
class Actor:
    def fine(self) -> int:
        return 1

    def work(self, how: str) -> None:
        die(how)


def caught(name: str, ref: ray.ObjectRef) -> None:
    try:
        waited(ref, is_hanging=name == "hang")
    except Exception as error:  # noqa: BLE001  # whatever it is, it is printed
        notes = getattr(error, "__notes__", [])
        kinds = [one.__name__ for one in type(error).__mro__]
        print(json.dumps({"name": name, "types": kinds, "message": str(error), "notes": notes}), flush=True)


def main(hows: list[str]) -> None:
    for how in hows:
        if how == "hang":
            hang()
        elif how == "retries":
            caught(how, work_twice.remote("exit 3"))
        elif how.startswith("actor "):
            actor: Any = Actor.remote()  # type: ignore[attr-defined]
            ray.get(actor.fine.remote())
            caught(how, actor.work.remote(how.removeprefix("actor ")))
            caught("called when dead", actor.fine.remote())
        elif how in ("rows", "bad row"):
            rows(how, "SIGSEGV" if how == "rows" else "exception")
        elif how == "batches":
            batches()
        else:
            caught(how, work.remote(how))


def waited(ref: ray.ObjectRef, *, is_hanging: bool) -> None:
    """For one that hangs: until somebody knows of it. A timeout that comes before is as it always was."""
    while True:
        try:
            ray.get(ref, timeout=1.1 if is_hanging else None)
            return
        except ray.exceptions.GetTimeoutError as error:  # noqa: PERF203  # it is the point
            if hasattr(error, "__notes__"):
                raise


def hang() -> None:
    ref = work.remote("hang")
    caught("hang", ref)
    ray.cancel(ref, force=True)


def rows(name: str, how: str) -> None:
    import ray.data

    def check(row):
        if row["id"] == 11:
            die(how)
        return row

    materialized(name, ray.data.range(20, override_num_blocks=2).map(check, max_retries=0))


def batches() -> None:
    import ray.data

    def check(batch):
        if 11 in batch["id"]:
            die("exit 3")
        return batch

    blocks = ray.data.range(20, override_num_blocks=2)
    materialized("batches", blocks.map_batches(check, batch_size=5, max_retries=0))


def materialized(name: str, dataset: Any) -> None:
    try:
        dataset.materialize()
    except Exception as error:  # noqa: BLE001  # whatever it is, it is printed
        notes = getattr(error, "__notes__", [])
        print(json.dumps({"name": name, "types": [], "message": str(error), "notes": notes}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--hook":
        import lastwords
        from lastwords.engines.ray import runtime_env

        lastwords.enable()
        OPTIONS["runtime_env"] = runtime_env()
        del sys.argv[1]
    is_late = sys.argv[1] == "--late"
    if is_late:
        del sys.argv[1]
    ray.init(**OPTIONS)
    if is_late:
        import lastwords

        ray.get(work.remote("nothing"))  # starts a worker that knows nothing of us
        lastwords.enable()
    main(sys.argv[1].split(","))
