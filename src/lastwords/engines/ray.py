"""Ray: the exception that the driver sees says why the worker died, of which task, on which node.

    lastwords run -- python job.py                                            # nothing to change
    ray.init(runtime_env=lastwords.engines.ray.runtime_env())                 # a cluster, with lastwords on its nodes
    import lastwords; lastwords.enable()                                      # in the driver, before ray.init

Raylets wait for the workers and tell nobody how one ended. So the first worker of a node starts a watcher there
(ray_node.py), to which each worker says who it is. The watcher leaves an account of each death in the run's directory
and, for drivers on other hosts, in the cluster's own key-value store. The driver, handed a `WorkerCrashedError`, an
`ActorDiedError` or a `NodeDiedError`, looks for the account of that task and adds it as a note. A `GetTimeoutError` gets
one if it is known by then that the task hangs.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import lastwords
from lastwords import recording
from lastwords.engines import hangs, notes
from lastwords.engines.batches import each_batch
from lastwords.engines.contract import Engine, seconds

ENGINE = Engine("Ray", tested=("2.60",))
PATIENCE = 30.0
"""Seconds that a driver waits for the account of a death, where one is to be had. It takes one or two; but the watcher of
a busy node has to load Ray first. Once it has not come, the node may be gone, and the next error hardly waits.
"""
NODE_PATIENCE = 5.0
"""The same where Ray says that the node itself is dead: it took its time for that, and its watcher may be dead, too."""
GLANCE = 0.05
LAST_ATTEMPT = 0.5
HANG_AFTER = "LASTWORDS_RAY_HANG_AFTER"
DEATHS, HANGS, RECORDED = b"lastwords:death:", b"lastwords:hang:", b"lastwords:node:"
SPACE = b"lastwords"
LONGEST = 1 << 16
OWN_DIGITS, NO_ACTOR = 16, "f" * 24
"""Of a task's id, in hexadecimal. To ask Ray for the actor takes half a microsecond in every task."""
RECORD_IT = (
    "lastwords: nobody recorded this worker. For signal, cause, task and stack: pip install lastwords, on its node, and\n"
    "  lastwords run -- python JOB.py                                             with a Ray of your own\n"
    "  ray.init(runtime_env=lastwords.engines.ray.runtime_env())                  on a cluster"
)
NOT_TOLD = (
    "lastwords: workers of this job are recorded, and no account of this one's death has come. On its node, if that is still\n"
    "  there:  lastwords list"
)
NODE_GONE = (
    "lastwords: not this worker died, but its node, with all workers that it had, and nobody there could tell why{nodes}.\n"
    "  On that host, if it is still there:  dmesg -T | grep -iE 'out of memory|killed process'; ls -t /tmp/ray/*/logs/raylet.*"
)


def adapt(module: ModuleType) -> None:
    {
        "ray._private.worker": _adapt_worker,
        "ray._private.serialization": _adapt_reader,
        "ray.data._internal.execution.operators.map_transformer": _adapt_data,
    }[module.__name__](module)


def runtime_env(*, hang_after: float | None = None, **more: Any) -> dict[str, Any]:
    """For `ray.init`: has each worker of the job recorded, on every node that has lastwords.

    With `hang_after`, a task or row that takes longer than so many seconds is explained: in the GetTimeoutError of
    whoever waits for it with a timeout. LASTWORDS_COLLECT goes along: deaths are collected where the driver's are.
    """
    variables = {"LASTWORDS_COLLECT": os.environ.get("LASTWORDS_COLLECT")}
    variables[HANG_AFTER] = str(hang_after) if hang_after is not None else None
    ours = {name: value for name, value in variables.items() if value}
    if ours:
        more["env_vars"] = {**ours, **more.get("env_vars", {})}
    return {"worker_process_setup_hook": "lastwords.engines.ray.setup", **more}


def setup() -> None:
    """Called in each worker as it starts, by Ray."""
    os.environ.setdefault("LASTWORDS", _directory_of_node())
    recording.enable()
    ray = sys.modules["ray._private.worker"]
    ENGINE.guarded(_introduce)(ray.global_worker)


def _directory_of_node() -> str:
    """One for all workers of a session on this node: their watcher looks there, and only there. Nodes may share a home."""
    home = os.environ.get("LASTWORDS_HOME") or os.path.join(
        os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"), "lastwords"
    )
    worker = sys.modules["ray._private.worker"].global_worker
    name = f"ray-{worker.node.session_name}-{worker.current_node_id.hex()[:12]}"
    directory = os.path.join(os.path.abspath(home), "runs", name)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    return directory


# In a worker.


def _adapt_worker(module: Any) -> None:
    worker = module.Worker
    _before(worker, "main_loop", _introduce)
    _before(worker, "record_task_log_start", _begin)
    _before(worker, "record_task_log_end", _end)
    _note_timeouts(worker)
    _before(sys.modules["ray.exceptions"].RayTaskError, "__init__", _note_error)


def _note_error(_: Any, _function: Any, _traceback: str, cause: Any, *_more: Any, **_named: Any) -> None:
    """A task's exception reaches the driver with its traceback: what is missing there is the task, the row and the host.

    As a note of the cause: what Ray raises has the attributes of its cause, and so a traceback shows the note.
    """
    # One without a traceback was not raised here, but came with an argument.
    if not _task or not isinstance(cause, Exception) or cause.__traceback__ is None:
        return
    recording.record_exception(cause)
    worker = sys.modules["ray._private.worker"].global_worker
    place = f"worker {worker.worker_id.hex()[:12]} · node {worker.current_node_id.hex()[:12]}"
    notes.add(cause, f"lastwords: {_where()} · {place} · pid {os.getpid()} · host {os.uname().nodename}")


def _where() -> str:
    current = recording.current_item() if _rows else None
    if current is None or current[1] is None:
        return _task
    key, number = current
    word, _, block = _rows.partition(" ")
    return f"{key if key not in (None, str(number)) else f'{word} {number}'} {block}, {_task}"


def _before(kind: Any, name: str, call: Any) -> None:
    original, guarded = getattr(kind, name), ENGINE.guarded(call)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        guarded(self, *args, **kwargs)
        return original(self, *args, **kwargs)

    setattr(kind, name, method)


_introduced: int | None = None


def _introduce(worker: Any) -> None:
    """Says who it is to the node's watcher, and starts that if there is none yet."""
    global _introduced
    if _introduced is not None or not recording.is_recording():
        return
    ENGINE.is_tested(sys.modules["ray"].__version__)
    recording.describe(_role(worker))
    recording.keep_own_box()
    _introduced = _open_letter_box(os.environ["LASTWORDS"])
    gcs = worker.gcs_client.address
    who = {
        "pid": os.getpid(),
        "worker": worker.worker_id.hex(),
        "node": worker.current_node_id.hex(),
        "ip": worker.node_ip_address,
        "gcs": gcs,
        "raylet": os.getppid(),
        "hang_after": seconds(HANG_AFTER),
    }
    os.write(_introduced, f"{json.dumps(who)}\n".encode())
    _start_watcher(_introduced, os.environ["LASTWORDS"])
    worker.gcs_client.internal_kv_put(RECORDED + who["node"].encode(), b"", True, SPACE)


def _role(worker: Any) -> str:
    return f"Ray worker {worker.worker_id.hex()[:12]}"


def _open_letter_box(directory: str) -> int:
    """A fifo. Opened for both ways it never blocks, and holds the letter until the watcher is there to read it."""
    path = os.path.join(directory, "ray")
    try:
        os.mkfifo(path, 0o600)
    except FileExistsError:
        pass
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _start_watcher(letters: int, directory: str) -> None:
    """Not recorded itself, and no child of ours: workers come and go."""
    try:
        fcntl.flock(letters, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return  # there is one, and it holds the lock
    fcntl.flock(letters, fcntl.LOCK_UN)
    variables = {name: value for name, value in os.environ.items() if name != "LASTWORDS"}
    detached = "import os; os.fork() and os._exit(0); from lastwords.engines import ray_node; ray_node.main()"
    subprocess.Popen(
        [sys.executable, "-c", detached, directory],
        env=variables,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    ).wait()


_task = ""
_rows = ""
"""`row of block 3`, while a task of Ray Data goes through rows."""


def _begin(worker: Any, task: Any, attempt: int) -> None:
    global _task
    name, identity = worker.core_worker.get_current_task_name(), task.hex()
    again = f", attempt {attempt + 1}" if attempt else ""
    of_actor = "" if identity.startswith(NO_ACTOR, OWN_DIGITS) else f" of actor {identity[OWN_DIGITS:]}"
    _task = f"task {name.replace(' ', '_')} {_short(identity)}{again}{of_actor}"
    recording.begin(None, _task, recording.RUN)


def _short(task: str) -> str:
    """The part of a task's id that is its own; what follows is its actor's id, which ends with its job's."""
    return task[:OWN_DIGITS]


def _end(worker: Any, _ended: Any, _attempt: int) -> None:
    global _rows
    recording.end_item()
    if _rows:
        _rows = ""
        recording.describe(_role(worker))


def _adapt_data(module: Any) -> None:
    """Ray Data: each row, or batch, is an item of its own while the job's function works on it."""
    for kind, word in ((module.RowMapTransformFn, "row"), (module.BatchMapTransformFn, "batch")):
        _mark_items(kind, word)


def _mark_items(kind: Any, word: str) -> None:
    prepare, mark = kind._pre_process, ENGINE.guarded(_marked)

    @functools.wraps(prepare)
    def _pre_process(self: Any, blocks: Any) -> Any:
        items = prepare(self, blocks)
        return mark(items, word) or items

    kind._pre_process = _pre_process


def _marked(items: Any, word: str) -> Any:
    """The task's own name moves into the role meanwhile: an item's number is written in 40 ns, a text in 200."""
    global _rows
    context = sys.modules["ray.data._internal.execution.interfaces.task_context"].TaskContext.get_current()
    if context is None or not _task:
        return None
    _rows = f"{word} of block {context.task_idx}"
    # The task's id before its name: a role has room for some 60 letters.
    name, identity = _task.removeprefix("task ").split(" ", 1)
    recording.describe(f"Ray worker, {word} of block {context.task_idx}, task {identity} {name}")
    return lastwords.each(items) if word == "row" else each_batch(items, _length)


def _length(batch: Any) -> int | None:
    """Of a dictionary of columns, a data frame or a table; None: it is something else."""
    try:
        return len(next(iter(batch.values()))) if isinstance(batch, dict) else len(batch)
    except (StopIteration, TypeError):
        return None


# In a driver, or whoever asks for a result.


def _adapt_reader(module: Any) -> None:
    kind, explain = module.SerializationContext, ENGINE.guarded(_explain)
    read = kind.deserialize_objects
    errors = sys.modules["ray.exceptions"]
    lost = (errors.WorkerCrashedError, errors.RayActorError, errors.OutOfMemoryError, errors.NodeDiedError)

    @functools.wraps(read)
    def deserialize_objects(self: Any, serialized: Any, refs: Any, *args: Any, **kwargs: Any) -> Any:
        found = read(self, serialized, refs, *args, **kwargs)
        for ref, value in zip(refs, found):  # noqa: B905  # read() has seen to it
            if isinstance(value, lost):
                explain(value, ref)
        return found

    kind.deserialize_objects = deserialize_objects


def _explain(error: Any, ref: Any) -> None:
    task = _short(ref.task_id().hex()) if ref is not None else None
    names = [name for name in (task, getattr(error, "actor_id", None)) if name]
    is_recorded, is_of_node = _is_recorded(), _is_of_node(error)
    accounts = _awaited(names, is_of_node=is_of_node) if is_recorded else []
    if accounts:
        # The last attempt is the one that this error is about; it has died just now.
        time.sleep(LAST_ATTEMPT)
        accounts = _about(names)
    untold = _node_gone() if is_of_node else NOT_TOLD if is_recorded else RECORD_IT
    notes.add(error, _account(sorted(accounts, key=lambda one: one["time"])) or untold)


def _is_of_node(error: Any) -> bool:
    """Ray says of a task and of an actor, each in its own words, that not the worker has died, but its node."""
    return type(error).__name__ == "NodeDiedError" or "its node has died" in str(error)


_patience = PATIENCE


def _awaited(names: list[str], *, is_of_node: bool) -> list[dict[str, Any]]:
    global _patience
    until = time.monotonic() + (NODE_PATIENCE if is_of_node else _patience)
    while not (accounts := _about(names)) and time.monotonic() < until:
        time.sleep(GLANCE)
    if not is_of_node:
        _patience = PATIENCE if accounts else LAST_ATTEMPT
    return accounts


def _about(names: list[str], kind: bytes = DEATHS) -> list[dict[str, Any]]:
    found = {one["worker"]: one for one in _accounts(kind) if any(name in one["item"] for name in names)}
    return list(found.values())


def _account(accounts: list[dict[str, Any]]) -> str | None:
    if not accounts:
        return None
    *before, last = accounts
    if not before:
        return str(last["text"]).rstrip("\n")
    others = ", ".join(f"pid {one['pid']} on {one['host']} {one['ending']}" for one in before)
    return f"{last['text']}  before that, of the same task: {others}"


def _node_gone() -> str:
    dead = [one for one in sys.modules["ray"].nodes() if not one["Alive"]]
    places = [f"{one['NodeID'][:12]} at {one['NodeManagerAddress']}" for one in dead]
    return NODE_GONE.format(nodes=f" (dead by now: node {', node '.join(places)})" if places else "")


# A driver that has waited long enough.


def _note_timeouts(kind: Any) -> None:
    get, explain = kind.get_objects, ENGINE.guarded(_explain_timeout)
    timed_out = sys.modules["ray.exceptions"].GetTimeoutError

    @functools.wraps(get)
    def get_objects(self: Any, refs: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return get(self, refs, *args, **kwargs)
        except timed_out as error:
            explain(error, refs)
            raise

    kind.get_objects = get_objects


def _explain_timeout(error: Any, refs: Any) -> None:
    if not hangs.may_look():
        return
    from lastwords.engines.ray_node import item_words

    names = {_short(ref.task_id().hex()) for ref in refs}
    accounts = _about(list(names), HANGS)
    text = str(accounts[-1]["text"]) if accounts else None
    text = text or hangs.seen_by_lastwords_run(names, item_words, "Ray worker")
    if text:
        notes.add(error, text.rstrip("\n"))


# What watchers have left.


def _is_recorded() -> bool:
    directory = os.environ.get("LASTWORDS")
    if directory is not None and os.path.exists(os.path.join(directory, "ray")):
        return True
    return bool(_asked("internal_kv_keys", RECORDED, SPACE))


def _accounts(kind: bytes) -> Iterator[dict[str, Any]]:
    """From the run's own directory, on this host, and from the cluster's store."""
    for path in _local(".account" if kind == DEATHS else ".hang"):
        with open(path, "rb") as file:
            yield json.loads(file.read(LONGEST))
    for key in _asked("internal_kv_keys", kind, SPACE) or ():
        content = _asked("internal_kv_get", key, SPACE)
        if content is not None:
            yield json.loads(content[:LONGEST])


def _local(suffix: str) -> list[str]:
    directory = os.environ.get("LASTWORDS")
    if directory is None:
        return []
    return [os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(suffix)]


def _asked(question: str, *words: Any) -> Any:
    """The cluster's store. One that does not answer now, as on a busy machine, is no reason to say nothing at all."""
    client = sys.modules["ray._private.worker"].global_worker.gcs_client
    try:
        return getattr(client, question)(*words)
    except Exception as error:  # of Ray's making, and of many kinds
        recording.note(f"Ray's store, {question}: {type(error).__name__}: {error}")
        return None
