"""A worker's first tasks, run once in the parent before it forks any worker.

A fork shares its parent's memory until one of them writes to it. The interpreter writes into code while that is new (it
counts calls, and adapts instructions to what they meet), and into its table of methods when it meets a name for the first
time. What has happened here has happened for all workers: each has two hundred kilobytes less of its own.
"""

from __future__ import annotations

import os
import pickle

from lastwords import recording
from lastwords.survive import channel, worker

ROUNDS = 12
"""From the eighth call on, CPython 3.11 counts no more."""
_was_held = False


def hold() -> None:
    """Not in a recorded process: its black box would tell of tasks that were none."""
    global _was_held  # noqa: PLW0603  # one process, and its forks have it from there
    if _was_held or recording.is_recording():
        return
    _was_held = True
    try:
        _rehearse()
    except OSError:  # no more files: workers will say so themselves
        pass


def _rehearse() -> None:
    descriptor, memory = channel.new_memory()
    frames, orders = os.pipe2(os.O_CLOEXEC)
    news, bell = os.pipe2(os.O_CLOEXEC)
    try:
        handover = worker.Handover(memory, descriptor, frames, bell)
        for number in range(1, ROUNDS + 1):
            _play(handover, orders, number)
    finally:
        memory.close()
        for one in (descriptor, frames, orders, news, bell):
            os.close(one)


def _play(handover: worker.Handover, orders: int, number: int) -> None:
    """One task from a worker's beginning to its end."""
    player = worker.Worker(0, handover, worker.Settings("rehearsal", None, channel.PAGE, 0))
    player.set_up(None)
    _order(handover.memory, orders, number)
    os.write(orders, channel.FRAME.pack(channel.STOP, 0, 0))
    player.serve()
    player.close()


def _order(memory: channel.SharedMemory, orders: int, number: int) -> None:
    """As `WorkerHandle.hand` does it."""
    call = pickle.dumps(((number,), {}), 5)
    batch = pickle.dumps(({0: pickle.dumps(abs, 5)}, [(number, number, 0, call, [])]), 5)
    memory.memory[channel.TASKS_AT : channel.TASKS_AT + len(batch)] = batch
    memory.claims.reset(number, 1)
    os.write(orders, channel.FRAME.pack(channel.BATCH, channel.TASKS_AT, len(batch)))
