"""The light future keeps the promises of the standard one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from concurrent.futures import _base

import pytest

from lastwords.survive.executor import ProcessPoolExecutor
from lastwords.survive.future import LightFuture
from tests.survive import deadly


def test_no_wake_up_is_lost_when_finishing_races_with_waiting():
    for _ in range(2000):
        future: LightFuture[int] = LightFuture()
        future.set_running_or_notify_cancel()
        finisher = threading.Thread(target=future.set_result, args=(1,))
        finisher.start()
        assert future.result(30) == 1
        finisher.join()


def test_whoever_waits_for_several_while_they_finish_is_told_of_each_once():
    """Told twice of one, `wait` would not wait for the last, and `as_completed` would stumble over it."""
    for way in range(400):
        futures: list[concurrent.futures.Future[int]] = [LightFuture() for _ in range(8)]
        for future in futures:
            future.set_running_or_notify_cancel()
        finisher = threading.Thread(target=finish, args=(futures,))
        finisher.start()
        if way % 2:
            assert concurrent.futures.wait(futures, timeout=60).not_done == set()
        else:
            assert len(list(concurrent.futures.as_completed(futures, timeout=60))) == 8
        finisher.join()


def finish(futures: list[concurrent.futures.Future[int]]) -> None:
    for future in futures:
        future.set_result(1)


def test_a_future_that_is_seen_finished_is_not_told_of_again():
    """The finisher is held between its two steps, where `wait` used to see the first and hear of the second."""
    future: LightFuture[int] = LightFuture()
    last: LightFuture[int] = LightFuture()
    for one in (future, last):
        one.set_running_or_notify_cancel()
    with future._condition, last._condition:
        finisher = threading.Thread(target=future.set_result, args=(1,))
        finisher.start()
        assert future._state == _base.RUNNING  # whatever it does, nobody sees it while this is held
        waiter = _base._create_and_install_waiters([future, last], "ALL_COMPLETED")  # type: ignore[attr-defined]
    finisher.join()
    assert waiter.finished_futures == [future] and not waiter.event.is_set()
    last.set_result(2)
    assert waiter.event.is_set()


def test_either_cancelled_or_run_and_never_both():
    for _ in range(500):
        future: LightFuture[int] = LightFuture()
        ran: list[bool] = []
        runner = threading.Thread(target=lambda f=future, r=ran: r.append(f.set_running_or_notify_cancel()))
        runner.start()
        cancelled = future.cancel()
        runner.join()
        assert cancelled is not ran[0]
        assert future.cancelled() is cancelled


def test_callbacks_waiters_and_exceptions():
    early: LightFuture[int] = LightFuture()
    late: LightFuture[int] = LightFuture()
    heard: list[object] = []
    early.add_done_callback(heard.append)
    for future in (early, late):
        future.set_running_or_notify_cancel()
        assert future.running() and not future.cancel()
    early.set_result(1)
    late.set_exception(KeyError("x"))
    late.add_done_callback(heard.append)
    assert heard == [early, late]
    assert concurrent.futures.wait([early, late], timeout=5).not_done == set()
    both: list[concurrent.futures.Future[int]] = [early, late]
    assert set(concurrent.futures.as_completed(both, timeout=5)) == {early, late}
    assert isinstance(late.exception(), KeyError)
    with pytest.raises(KeyError):
        late.result()
    with pytest.raises(concurrent.futures.TimeoutError):
        LightFuture().result(0.001)


def test_waiting_and_asyncio_on_a_real_pool():
    async def several(executor: ProcessPoolExecutor) -> list[int]:
        loop = asyncio.get_running_loop()
        return await asyncio.gather(
            *(loop.run_in_executor(executor, deadly.work, item) for item in range(50))
        )

    with ProcessPoolExecutor(2) as executor:
        futures = [executor.submit(deadly.work, item) for item in range(100)]
        assert {one.result() for one in concurrent.futures.as_completed(futures, timeout=60)} == set(
            range(0, 1000, 10)
        )
        assert list(executor.map(deadly.work, range(100), chunksize=7)) == list(range(0, 1000, 10))
        assert asyncio.run(several(executor)) == list(range(0, 500, 10))


def test_shutdown_cancels_what_has_not_begun():
    executor = ProcessPoolExecutor(1)
    futures = [executor.submit(deadly.work, item) for item in range(1000)]
    executor.shutdown(cancel_futures=True)
    assert all(one.done() for one in futures)
    assert all(one.cancelled() or one.result() == item * 10 for item, one in enumerate(futures))
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(deadly.work, 1)
