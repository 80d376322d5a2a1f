"""Dask distributed: the task that a worker runs is its item, its nanny explains its death, and the client's
`KilledWorker` carries the explanation.

    lastwords run -- python job.py                                    # LocalCluster: nothing to change
    dask worker --preload-nanny lastwords.engines.dask SCHEDULER      # a cluster, on each host
    DASK_DISTRIBUTED__NANNY__PRELOAD=lastwords.engines.dask           # the same, from the environment
    import lastwords; lastwords.enable()                              # in the client's program

The scheduler gives up on a task when its worker's connection breaks, often before the nanny has looked at the body.
So the client, told of a `KilledWorker`, first asks the scheduler for the nanny's account (topic `lastwords`), joined by
the worker's pid and the task's key: a worker's address is used again by its successor. A `TimeoutError` of
`future.result(timeout=...)` gets a note if it is known by then that the task hangs.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from lastwords import recording
from lastwords.engines import hangs, notes
from lastwords.engines.contract import Engine, seconds

ENGINE = Engine("Dask", tested=("2026.8",))
TOPIC = "lastwords"
PATIENCE = 10.0
"""Seconds that a client waits for the nanny's account. Explaining takes 10 to 300 ms, and more on a busy machine."""
GLANCE = 0.05
HANG_AFTER = "LASTWORDS_DASK_HANG_AFTER"
RECORD_IT = (
    "lastwords: nobody recorded this worker. For signal, cause and stack: pip install lastwords, where it runs, and\n"
    "  lastwords run -- python JOB.py                              with a LocalCluster\n"
    "  dask worker --preload-nanny lastwords.engines.dask ...      with any other"
)
NOT_TOLD = (
    "lastwords: this worker was recorded (pid {pid}), and its nanny has not told why it died; a nanny whose worker dies\n"
    "  before it has seen it come up ends, too. On that host:  lastwords list"
)


def adapt(module: ModuleType) -> None:
    {
        "distributed.worker": _adapt_worker,
        "distributed.nanny": _adapt_nanny,
        "distributed.client": _adapt_client,
    }[module.__name__](module)


def dask_setup(service: Any) -> None:
    """Called by a preload, in a nanny or in a worker: what it imports and starts from now on is recorded.

    LASTWORDS_DASK_RESOURCES=avx2,fma makes resources of what this host's CPU has of that, for
    `client.submit(f, resources={"fma": 1})`. A resource that the user has set himself stays as it is.
    """
    recording.enable()
    wanted = os.environ.get("LASTWORDS_DASK_RESOURCES", "")
    if wanted and hasattr(service, "resources"):
        ENGINE.guarded(_add_resources)(service, wanted.split(","))


def _add_resources(nanny: Any, wanted: list[str]) -> None:
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        flags = next((set(line.split()) for line in file if line.startswith(("flags", "Features"))), set())
    found = {name: 1.0 for name in wanted if name in flags}
    nanny.resources = {**found, **(nanny.resources or {})}


# In a worker.


def _adapt_worker(module: Any) -> None:
    running = _Running()
    module._run_task_simple = _marking(module._run_task_simple, running)
    module._run_task_async = _marking_async(module._run_task_async, running)
    _note_errors(module, running)
    _describe_workers(module.Worker, running)


_this_thread, _begin_item, _end_item = threading.get_ident, recording.begin, recording.end_item


class _Running:
    """The tasks of all threads of a worker: a crash takes all of them along, and its box has room for one name."""

    def __init__(self) -> None:
        self.keys: dict[int, str] = {}
        self.worker = ""

    # Twice in every task: each call that these two save is felt in a graph of thousands of empty ones.

    def begin(self, key: Any) -> None:
        keys = self.keys
        keys[_this_thread()] = key = str(key)
        if len(keys) == 1:
            _begin_item(None, f"task {key}", recording.RUN)
        else:
            self._mark()

    def end(self) -> None:
        keys = self.keys
        keys.pop(_this_thread(), None)
        if keys:
            self._mark()
        else:
            _end_item()

    def _mark(self) -> None:
        keys = tuple(self.keys.values())
        recording.begin_item(f"task {keys[0]}" if len(keys) == 1 else f"one of the tasks {', '.join(keys)}")


def _marking(run: Callable[..., Any], running: _Running) -> Callable[..., Any]:
    """Outside of the `try` that makes the traceback the client shows: no line of ours is in that."""

    @functools.wraps(run)
    def _run_task_simple(task: Any, *args: Any, **kwargs: Any) -> Any:
        running.begin(task.key)
        try:
            return run(task, *args, **kwargs)
        finally:
            running.end()

    return _run_task_simple


def _marking_async(run: Callable[..., Any], running: _Running) -> Callable[..., Any]:
    @functools.wraps(run)
    async def _run_task_async(task: Any, *args: Any, **kwargs: Any) -> Any:
        running.begin(task.key)
        try:
            return await run(task, *args, **kwargs)
        finally:
            running.end()

    return _run_task_async


def _note_errors(module: Any, running: _Running) -> None:
    """A task's exception reaches the client with its traceback: what is missing there is the task and the host."""
    pack = module.error_message

    @functools.wraps(pack)
    def error_message(error: BaseException, *args: Any, **kwargs: Any) -> Any:
        ENGINE.guarded(_note_error)(error, running)
        return pack(error, *args, **kwargs)

    module.error_message = error_message


def _note_error(error: BaseException, running: _Running) -> None:
    key = running.keys.get(threading.get_ident())
    if key is not None and isinstance(error, Exception):
        recording.record_exception(error)
        notes.add(
            error,
            f"lastwords: task {key} · {running.worker} · pid {os.getpid()} · host {os.uname().nodename}",
        )


def _describe_workers(kind: Any, running: _Running) -> None:
    start = kind.start_unsafe

    @functools.wraps(start)
    async def start_unsafe(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = await start(self, *args, **kwargs)
        ENGINE.guarded(_describe_worker)(self, running)
        return result

    kind.start_unsafe = start_unsafe


def _describe_worker(worker: Any, running: _Running) -> None:
    running.worker = (
        f"worker {worker.name}"
        if str(worker.name) == worker.address
        else f"worker {worker.name} at {worker.address}"
    )
    # Without a nanny it may live in the client's own process, which is somebody else.
    if worker.nanny is not None:
        recording.describe(f"Dask worker {worker.name}")
        recording.keep_own_box()


# In a nanny.


def _adapt_nanny(module: Any) -> None:
    kind = module.WorkerProcess
    connected, mark_stopped = kind._wait_until_connected, kind.mark_stopped
    begin, end = ENGINE.guarded(_begin), ENGINE.guarded(_end)

    # The process has been started, and has not done anything yet: a worker may die on the first task it is sent,
    # before its nanny knows that it has come up.
    @functools.wraps(connected)
    async def _wait_until_connected(self: Any, *args: Any, **kwargs: Any) -> Any:
        begin(self)
        return await connected(self, *args, **kwargs)

    @functools.wraps(mark_stopped)
    def _mark_stopped(self: Any) -> Any:
        end(self)
        return mark_stopped(self)

    kind._wait_until_connected = _wait_until_connected
    kind.mark_stopped = _mark_stopped
    _note_memory_stops(module.Nanny)


def _note_memory_stops(kind: Any) -> None:
    """The nanny's memory monitor logs this event just before it ends its worker: the signal itself says nothing."""
    log_event, note = kind.log_event, ENGINE.guarded(_note_memory_stop)

    @functools.wraps(log_event)
    def _log_event(self: Any, topic: Any, msg: Any) -> Any:
        if topic == "worker-restart-memory":
            note(self, msg)
        return log_event(self, topic, msg)

    kind.log_event = _log_event


def _note_memory_stop(nanny: Any, event: dict[str, Any]) -> None:
    memory = nanny.memory_manager
    share, limit = memory.memory_terminate_fraction, memory.memory_limit / (1 << 30)
    used = event["rss"] / (1 << 30)
    why = f"Dask's nanny saw {used:.2f} GiB, over {share:.0%} of memory_limit, {limit:.2f} GiB"
    recording.note_stop(event["pid"], "memory", why)


def _begin(process: Any) -> None:
    from lastwords import postmortem

    ENGINE.is_tested(sys.modules["distributed"].__version__)
    nanny, pid = process.on_exit.__self__, process.process.pid
    process._lastwords = (nanny, postmortem.begin(pid))
    nanny.log_event(TOPIC, {"kind": "recorded", "pid": pid})
    after = seconds(HANG_AFTER)
    # `lastwords run` asks those that hang itself, and two that ask are one too many.
    if after and not postmortem.is_watched():
        watch, arguments = ENGINE.guarded(_watch_for_hangs), (process, nanny, pid, after)
        threading.Thread(target=watch, args=arguments, name="lastwords", daemon=True).start()


def _watch_for_hangs(process: Any, nanny: Any, pid: int, after: float) -> None:
    """In a thread of the nanny, as long as its worker lives."""
    from lastwords import postmortem
    from lastwords.engines.children import hanging, is_alive

    seen = 0
    while is_alive(pid):
        time.sleep(after / 4)
        age = postmortem.item_age(pid)
        if age is None or age[0] < after or age[1] == seen:
            continue
        found = hanging(pid, after)
        if found is not None:
            seen = found.started_ns
            event = _event("hang", nanny, pid, found.diagnosis, process.worker_address)
            nanny.loop.add_callback(ENGINE.guarded(nanny.log_event), TOPIC, event)


def _end(process: Any) -> None:
    """Before Dask forgets the process. Explaining takes its time, and the nanny's loop has none."""
    known = getattr(process, "_lastwords", None)
    # Any other status: it was told to stop, and did.
    if known is None or process.process is None or process.status.name not in ("starting", "running"):
        return
    arguments = (*known, process.process.pid, process.process.exitcode, process.worker_address)
    # No daemon: a nanny whose worker dies before it has seen it come up ends at once, and is to keep the death first.
    threading.Thread(target=ENGINE.guarded(_tell), args=arguments, name="lastwords").start()


def _tell(nanny: Any, begun: Any, pid: int, code: int, address: str | None) -> None:
    from lastwords import postmortem
    from lastwords.engines.children import died_on_an_item, examine, wait_status

    if code == 0 and not died_on_an_item(pid):
        postmortem.forget(pid)
        return
    event = _event("death", nanny, pid, examine(pid, wait_status(code), begun), address)
    if not postmortem.is_watched():  # else `lastwords run` shows it
        sys.stderr.write(event["text"])
        sys.stderr.flush()
    postmortem.forget(pid)
    nanny.loop.add_callback(ENGINE.guarded(nanny.log_event), TOPIC, event)


def _event(kind: str, nanny: Any, pid: int, diagnosis: Any, address: str | None) -> dict[str, Any]:
    from lastwords import postmortem
    from lastwords.engines.children import ending

    death, best = diagnosis.evidence.id, diagnosis.best
    host, key = os.uname().nodename, _item_key(diagnosis.evidence)
    context = [f"worker {address or 'that never came up'} · host {host}", *_memory_limit(nanny, pid)]
    context += [f"on that host: lastwords show {death}"] if death else []
    return {
        "kind": kind,
        "pid": pid,
        "worker": address,
        "host": host,
        "item": key,
        "ending": ending(diagnosis),
        "cause": best.id if best is not None else None,
        "death": death,
        "text": postmortem.text(diagnosis, subject="Dask worker", item=key, context=context),
    }


def _memory_limit(nanny: Any, pid: int) -> Iterable[str]:
    """Dask's own limit: its nanny ends a worker that comes near it."""
    memory = nanny.memory_manager
    if memory._last_terminated_pid != pid:
        return ()
    share, limit = memory.memory_terminate_fraction, memory.memory_limit / (1 << 30)
    return (f"its nanny ended it: its memory was over {share:.0%} of memory_limit, {limit:.2f} GiB",)


# In a client.


def _adapt_client(module: Any) -> None:
    handle = module.Client._handle_task_erred
    clean, needs = module.clean_exception, ENGINE.guarded(_is_killed_worker)

    @functools.wraps(handle)
    def _handle_task_erred(self: Any, key: Any = None, exception: Any = None, traceback: Any = None) -> None:
        killed = needs(clean, exception, traceback)
        if killed is None:
            handle(self, key=key, exception=exception, traceback=traceback)
            return

        async def explained() -> None:
            try:
                await _add_account(self, key, killed)
            except Exception as error:  # the exception itself must arrive, whatever befalls its note
                ENGINE.off(f"asking for the nanny's account: {type(error).__name__}: {error}")
            handle(self, key=key, exception=killed, traceback=None)

        self._lastwords = asyncio.ensure_future(explained())

    module.Client._handle_task_erred = _handle_task_erred
    _note_timeouts(module.Future)


def _is_killed_worker(clean: Callable[..., Any], exception: Any, traceback: Any) -> Any:
    _, error, _ = clean(exception, traceback)
    return error if type(error).__name__ == "KilledWorker" else None


async def _add_account(client: Any, key: Any, error: Any) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        events = [event for _, event in await client.scheduler.events(topic=TOPIC) or ()]
        about = [event for event in events if event.get("pid") == error.last_worker.pid]
        deaths = [event for event in about if event["kind"] == "death"]
        if deaths or not about or time.monotonic() > until:
            break
        await asyncio.sleep(GLANCE)
    of_task = [event for event in events if _concerns(event, key)]
    untold = NOT_TOLD.format(pid=error.last_worker.pid) if about else RECORD_IT
    notes.add(error, _account(deaths, of_task) or untold)


def _concerns(event: dict[str, Any], key: Any) -> bool:
    return event["kind"] == "death" and str(key) in (event["item"] or "")


# A client that has waited long enough.


def _note_timeouts(kind: Any) -> None:
    result, explain = kind.result, ENGINE.guarded(_explain_timeout)

    @functools.wraps(result)
    def _result(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return result(self, *args, **kwargs)
        except asyncio.TimeoutError as error:
            if self.status == "pending":  # else it is the task's own
                explain(error, self)
            raise

    kind.result = _result


def _explain_timeout(error: BaseException, future: Any) -> None:
    if not hangs.may_look():
        return
    text = hangs.seen_by_lastwords_run([str(future.key)], _item_key, "Dask worker")
    text = text or _seen_by_nanny(future.client, future.key)
    if text:
        notes.add(error, text.rstrip("\n"))


def _item_key(evidence: Any) -> str | None:
    return evidence.item.key if evidence.item is not None else None


def _seen_by_nanny(client: Any, key: Any) -> str | None:
    try:
        events = client.sync(client.scheduler.events, topic=TOPIC, callback_timeout=hangs.GLANCE) or ()
    except asyncio.TimeoutError:
        return None
    about = [event for _, event in events if str(key) in (event.get("item") or "")]
    last = about[-1] if about else None
    return str(last["text"]) if last is not None and last["kind"] == "hang" else None


def _account(deaths: list[dict[str, Any]], of_task: list[dict[str, Any]]) -> str | None:
    if not deaths:
        return None
    last = deaths[-1]
    same = [event for event in of_task if event is not last]
    if not same:
        return str(last["text"]).rstrip("\n")
    others = ", ".join(f"pid {event['pid']} on {event['host']} {event['ending']}" for event in same)
    return f"{last['text']}  before that, of the same task: {others}"
