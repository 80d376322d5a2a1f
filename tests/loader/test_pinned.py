"""Pinned where they lie: what the driver is told, that nobody writes before the GPU has read, and what is left."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from lastwords.survive import loader_iterator
from lastwords.survive import pinned as pinned_module
from lastwords.survive.blocks import PAGE, Blocks
from lastwords.survive.cuda_driver import CudaDriver, CudaError
from lastwords.survive.loader_report import Report
from lastwords.survive.pinned import PinnedLending, Pinning
from lastwords.torch import DataLoader
from tests.loader.fake_gpu import FakeGpu
from tests.loader.subjects import serving
from tests.loader.test_soak import check_that_nothing_grows, footprint

pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore::UserWarning")]

BUDGET = 1 << 20
ARENA = 1 << 26


# The book-keeping, with a driver that checks what it is told


class Arena:
    """A worker's memory, with both of its sides in this process."""

    def __init__(self, gpu: FakeGpu, most_held: int = 64) -> None:
        self.gpu = gpu
        self.pinning = Pinning(gpu, most_held, Report())
        descriptor = os.memfd_create("lastwords-test", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, ARENA)
        self.memory = mmap.mmap(descriptor, ARENA)
        os.close(descriptor)
        self.blocks = Blocks(self.memory, 0, ARENA, ARENA, keeps_pages=True)
        self.lending: PinnedLending = self.pinning.lending(self.memory, BUDGET)

    def lend(self, length: int = 3 * PAGE + 5) -> Any:
        """As a batch comes: the worker has built it, and the supervisor borrows it."""
        at = self.blocks.take(length)
        assert at is not None
        return self.lending.borrow(at, length)

    def settle(self) -> None:
        """Four blocks of four pages each are registered, and free."""
        blocks = [self.lend() for _ in range(4)]
        self.pinning.turn()
        blocks.clear()
        self.pinning.turn()
        self.pinning.turn()
        self.give_back()
        assert list(self.gpu.registered.values()) == [16 * PAGE]

    def give_back(self) -> None:
        """As the supervisor does, and what the worker then does."""
        while self.lending.returned:
            self.blocks.give_back(self.lending.returned.popleft())
        while self.lending.fences:
            self.blocks.fence(self.lending.fences.popleft())

    def end(self) -> None:
        """The worker, and then the iterator: as `WorkerHandle.close` does it."""
        self.blocks.close()
        self.lending.close()
        try:
            self.memory.close()
        except BufferError:
            pass
        self.pinning.close()


@pytest.fixture
def arena() -> Iterator[Arena]:
    one = Arena(FakeGpu())
    yield one
    if not one.lending._is_closed:
        one.end()
    finish()
    assert one.gpu.registered == {}
    one.memory.close()  # it would raise, were it lent to anybody
    assert pinned_module._unfinished == []


def test_it_is_registered_as_far_as_it_is_used(arena: Arena):
    arena.pinning.turn()
    assert arena.gpu.registered == {}
    kept = [arena.lend() for _ in range(8)]
    arena.pinning.turn()
    assert list(arena.gpu.registered.values()) == [8 * 4 * PAGE]
    arena.give_back()
    kept.append(arena.lend())  # an eighth more is not worth a part
    arena.pinning.turn()
    assert arena.gpu.registrations == 1
    kept.append(arena.lend())
    arena.pinning.turn()
    assert list(arena.gpu.registered.values()) == [8 * 4 * PAGE, 2 * 4 * PAGE]
    kept.clear()


def test_ragged_batches_make_few_parts_and_no_two_overlap(arena: Arena):
    """The GPU of these tests refuses what is registered already, and what is not mapped."""
    chooser = random.Random(1)
    held: list[Any] = []
    copies = 0
    for _ in range(2000):
        block = arena.lend(chooser.randrange(1, 40 * PAGE))
        copies += type(block) is bytearray
        held.append(block)
        del block
        if len(held) > 8:
            held.pop(chooser.randrange(len(held)))
        arena.pinning.turn()
        arena.give_back()
        assert all(is_whole(arena, one) for one in held if type(one) is not bytearray)
    assert 2 <= arena.gpu.registrations <= 16
    assert copies < 50  # made before the fence was up
    held.clear()


def is_whole(arena: Arena, block: Any) -> bool:
    """A copy to the GPU that leaves a part would be refused."""
    first, last = ctypes.addressof(block), ctypes.addressof(block) + len(block)
    parts = [(begin, begin + length) for begin, length in arena.gpu.registered.items()]
    return any(begin <= first and last <= end for begin, end in parts) or not any(
        begin < last and first < end for begin, end in parts
    )


def test_a_block_waits_until_the_gpu_has_read_it(arena: Arena):
    arena.settle()
    arena.gpu._delay = 2
    block = arena.lend()
    del block
    assert not arena.lending.returned
    for _ in range(3):  # recorded, asked, asked
        arena.pinning.turn()
        assert not arena.lending.returned
    arena.pinning.turn()
    assert len(arena.lending.returned) == 1
    assert arena.lending.lent == 0


def test_a_block_that_goes_while_the_gpu_is_asked_waits_for_the_next_answer():
    late: list[Any] = []

    class Interrupted(FakeGpu):
        def record(self) -> int:
            late.clear()  # as another thread may do
            return super().record()

    arena = Arena(Interrupted())
    arena.settle()
    first = arena.lend()
    late.append(arena.lend())
    del first
    arena.pinning.turn()
    arena.pinning.turn()
    assert len(arena.lending.returned) == 1
    arena.pinning.turn()
    assert len(arena.lending.returned) == 2
    arena.end()
    assert arena.gpu.registered == {}
    arena.memory.close()


def test_nonsense_of_a_dying_worker_is_not_passed_on(arena: Arena):
    for at, length in ((-PAGE, PAGE), (ARENA, 1), (0, ARENA + 1)):
        with pytest.raises(ValueError, match="written over its own memory"):
            arena.lending.borrow(at, length)
    arena.pinning.turn()
    assert arena.gpu.registrations == 0


def test_what_was_never_registered_is_free_at_once(arena: Arena):
    arena.gpu._delay = 10
    block = arena.lend()
    del block
    assert len(arena.lending.returned) == 1


def test_while_a_graph_is_captured_the_driver_is_left_alone(arena: Arena):
    kept = [arena.lend() for _ in range(4)]
    arena.gpu.is_busy_with_a_graph = True
    arena.pinning.turn()
    kept.clear()
    arena.pinning.turn()
    arena.gpu.is_busy_with_a_graph = False
    assert arena.gpu.registrations == 0


def test_when_too_much_is_lent_it_is_copied():
    arena = Arena(FakeGpu(), most_held=2)
    arena.settle()
    kept = [arena.lend(ARENA // 8) for _ in range(3)]
    assert [type(one) is bytearray for one in kept] == [False, False, True]
    del kept
    arena.end()
    assert arena.gpu.registered == {}
    arena.memory.close()


def test_what_is_kept_longer_than_its_worker_stays_mapped_and_registered(arena: Arena):
    arena.settle()
    kept = arena.lend()
    kept[:3] = b"abc"
    arena.end()
    assert arena.gpu.registered and not arena.memory.closed
    assert kept[:3] == b"abc"
    del kept
    assert arena.gpu.registered == {}


def test_what_the_gpu_still_reads_at_the_end_goes_with_the_next_epoch(arena: Arena):
    arena.settle()
    arena.gpu._delay = 3
    block = arena.lend()
    arena.end()
    del block
    assert arena.gpu.registered and pinned_module._unfinished == [arena.pinning]
    finish()
    assert arena.gpu.registered == {}


def test_pages_that_the_gpu_knows_are_not_given_back(arena: Arena):
    """They would be other pages later, and the GPU would go on to read the old ones."""
    at = arena.blocks.take(4 << 20)
    assert at is not None
    arena.blocks.give_back(at)
    assert not arena.blocks.is_worth_releasing


def test_a_driver_that_refuses_is_told_of_in_one_line():
    report = Report()
    pinning = Pinning(FakeGpu(refuses=lambda _: True), 4, report)
    assert pinning.begin() is False
    assert str(report).endswith(
        "\nbatches are pinned by a copy: cuMemHostRegister_v2: CUDA_ERROR_OUT_OF_MEMORY"
    )


def test_a_driver_that_refuses_later_keeps_what_it_has():
    arena = Arena(FakeGpu(refuses=lambda count: count >= 1))
    arena.settle()
    assert arena.pinning.turn() is True
    kept = [arena.lend(100 * PAGE) for _ in range(4)]
    assert arena.pinning.turn() is False
    assert len(arena.gpu.registered) == 1
    kept.clear()
    arena.end()
    assert arena.gpu.registered == {}
    arena.memory.close()


def finish() -> None:
    """Epochs that come later let go what the GPU was not done with."""
    for _ in range(100):
        Pinning(FakeGpu(), 1, Report()).begin()


# A whole loader, with the GPU of these tests


class Images(Dataset):
    """Large enough for blocks of their own; small ones beside them."""

    def __init__(self, length: int = 160, size: int = 64) -> None:
        self._length = length
        self._size = size

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return torch.full((3, self._size, self._size), float(index)), index


def check(batch: Any, number: int, size: int) -> None:
    images, indices = batch
    assert indices.tolist() == list(range(size * number, size * number + size))
    wrong = images != indices.view(-1, 1, 1, 1)
    assert not wrong.any()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    """torch believes that there is one; what it would copy into pinned memory itself stays where it is."""
    one = FakeGpu(delay=2)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(
        loader_iterator, "pinning_for", lambda prefetch, report: Pinning(one, prefetch + 3, report)
    )
    monkeypatch.setattr(pinned_module, "copy_the_rest", lambda data: data)
    yield one
    gc.collect()
    finish()
    assert one.registered == {}


def test_workers_do_not_write_what_the_gpu_has_not_read(gpu: FakeGpu):
    loader = DataLoader(Images(), batch_size=4, num_workers=2, pin_memory=True)
    pinned = 0
    for number, batch in enumerate(loader):
        check(batch, number, 4)
        if gpu.is_pinned(batch[0]):  # else torch would have copied it
            pinned += 1
            gpu.copy(batch[0])
        del batch
    assert pinned >= 10  # of 40; how many need room that is not registered yet is a matter of speed
    assert gpu.copied >= 5
    assert 2 <= gpu.registrations <= 20
    assert loader.report().pinned_by_copy is None


def test_batches_are_kept_over_the_death_of_their_worker(gpu: FakeGpu):
    iterator = iter(DataLoader(Images(), batch_size=4, num_workers=2, pin_memory=True))
    kept = []
    for number, batch in enumerate(iterator):
        kept.append(batch)
        if number == 12:
            os.kill(serving(iterator._supervisor)[0], signal.SIGKILL)
    del iterator, batch
    for number, batch in enumerate(kept):
        check(batch, number, 4)


def test_epochs_leave_nothing_registered(gpu: FakeGpu):
    gpu._delay = 0
    loader = DataLoader(Images(64), batch_size=4, num_workers=1, pin_memory=True)
    most = 0
    for _ in range(4):
        for number, batch in enumerate(loader):
            check(batch, number, 4)
            most = max(most, len(gpu.registered))
        del batch
    assert gpu.registrations >= 4
    assert most <= 16  # of this epoch, and of the last one while its last batch is kept


def test_a_driver_that_refuses_leaves_it_to_the_thread(monkeypatch: pytest.MonkeyPatch):
    """As everywhere without a driver: torch's own thread, here with nothing to pin into."""
    started: list[bool] = []

    def start(self: Any) -> None:
        started.append(True)
        self._pin_memory = False

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(loader_iterator.SurvivingIterator, "_start_pinning", start)
    refusing = FakeGpu(refuses=lambda _: True)
    monkeypatch.setattr(
        loader_iterator, "pinning_for", lambda prefetch, report: Pinning(refusing, prefetch + 3, report)
    )
    monkeypatch.setattr(pinned_module, "copy_the_rest", lambda data: data)
    loader = DataLoader(Images(16), batch_size=4, num_workers=1, pin_memory=True)
    next(iter(loader))
    assert started
    assert "CUDA_ERROR_OUT_OF_MEMORY" in (loader.report().pinned_by_copy or "")


def test_without_a_gpu_all_is_as_ever():
    if torch.accelerator.is_available():
        pytest.skip("there is one")
    loader = DataLoader(Images(16), batch_size=4, num_workers=1, pin_memory=True)
    iterator = iter(loader)
    assert iterator._pinning is None
    for number, batch in enumerate(iterator):
        check(batch, number, 4)
    assert "pinned" not in str(loader.report())


class Ragged(Dataset):
    """Rows that grow, and grow and shrink on the way."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((ragged_size(index),), float(index))


def ragged_size(index: int) -> int:
    return 10_000 + 2_500 * index + 40_000 * (index * 7919 % 13)


def first_of(rows: list[torch.Tensor]) -> torch.Tensor:
    return rows[0]


# With a real one

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
A_WHILE = 20_000_000
"""Cycles: some ten milliseconds."""


@pytest.fixture(scope="module")
def real_gpu() -> None:
    """In use before the first test: the driver's own descriptors are none of our leaks."""
    torch.ones(1, pin_memory=True).to("cuda", non_blocking=True).sum().item()
    CudaDriver().try_out()


def lies_in_an_arena(iterator: Any, tensor: torch.Tensor) -> bool:
    return any(
        (start := torch.frombuffer(arena._memory, dtype=torch.uint8, count=1).data_ptr())
        and arena._is_registered(tensor.data_ptr() - start, tensor.nbytes)
        for arena in iterator._pinning._arenas
    )


@pytest.fixture
def the_next_epoch_cleans_up(real_gpu: None) -> Iterator[None]:
    yield
    gc.collect()
    torch.cuda.synchronize()
    finish()


@needs_gpu
@pytest.mark.usefixtures("the_next_epoch_cleans_up")
class TestOnTheGpu:
    def test_a_moment_comes_after_the_work_of_every_stream(self):
        driver, side = CudaDriver(), torch.cuda.Stream()
        driver.try_out()
        with torch.cuda.stream(side):
            torch.cuda._sleep(50 * A_WHILE)
        moment = driver.record()
        assert moment and not driver.is_over(moment)
        torch.cuda.current_stream().synchronize()
        assert not driver.is_over(moment)
        side.synchronize()
        assert driver.is_over(moment)

    def test_batches_come_pinned_and_no_thread_copies_them(self):
        iterator = iter(DataLoader(Images(), batch_size=4, num_workers=2, pin_memory=True))
        in_place = 0
        for number, batch in enumerate(iterator):
            check(batch, number, 4)
            assert batch[0].is_pinned() and batch[1].is_pinned()
            in_place += lies_in_an_arena(iterator, batch[0])
        assert in_place >= 10  # of 40
        assert not hasattr(iterator, "_pin_memory_thread")
        assert "lastwords supervisor" not in [one.name for one in threading.enumerate()]

    @pytest.mark.parametrize("where", ["current stream", "side stream"])
    def test_copies_arrive_whole_while_workers_write_on(self, where: str):
        """The GPU is far behind: each copy is made long after its batch was dropped."""
        stream = torch.cuda.Stream() if where == "side stream" else torch.cuda.current_stream()
        copies = []
        for batch in DataLoader(Images(240, size=96), batch_size=4, num_workers=2, pin_memory=True):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(A_WHILE)
                copies.append([part.to("cuda", non_blocking=True) for part in batch])
            del batch
        torch.cuda.synchronize()
        for number, copy in enumerate(copies):
            check([part.cpu() for part in copy], number, 4)

    def test_after_a_rest_the_gpu_reads_what_is_there_now(self):
        """Workers that rest give pages back, but not these."""
        copies = []
        for number, batch in enumerate(
            DataLoader(Images(200, size=96), batch_size=4, num_workers=2, pin_memory=True)
        ):
            copies.append([part.to("cuda", non_blocking=True) for part in batch])
            del batch
            if number % 10 == 9:
                time.sleep(0.05)  # the rest
        for number, copy in enumerate(copies):
            check([part.cpu() for part in copy], number, 4)

    def test_ragged_batches_arrive_whole(self):
        """Some begin in one registered part and end in another, which no copy to the GPU may."""
        loader = DataLoader(Ragged(), batch_size=1, num_workers=2, pin_memory=True, collate_fn=first_of)
        iterator = iter(loader)
        most_parts = 0
        for index, row in enumerate(iterator):
            assert row.is_pinned()
            copy = row.to("cuda", non_blocking=True)
            assert len(copy) == ragged_size(index) and bool((copy == index).all())
            most_parts = max(most_parts, *(len(arena._parts) for arena in iterator._pinning._arenas))
        assert most_parts > 1

    def test_kept_batches_stay_as_they_are_and_pinned(self):
        kept = list(DataLoader(Images(200, size=96), batch_size=4, num_workers=2, pin_memory=True))
        for number, batch in enumerate(kept):
            check(batch, number, 4)
            assert all(part.is_pinned() for part in batch)
            check([part.to("cuda", non_blocking=True).cpu() for part in batch], number, 4)

    def test_a_worker_is_killed_and_its_batches_are_whole(self):
        iterator = iter(DataLoader(Images(240), batch_size=4, num_workers=2, pin_memory=True))
        kept, copies = [], []
        for number, batch in enumerate(iterator):
            torch.cuda._sleep(A_WHILE // 10)
            copies.append([part.to("cuda", non_blocking=True) for part in batch])
            if number % 5 == 0:
                kept.append((number, batch))
            if number in (12, 30):
                os.kill(serving(iterator._supervisor)[0], signal.SIGKILL)
            del batch
        assert iterator._supervisor.deaths == 2
        for number, copy in [*enumerate(copies), *kept]:
            check([part.cpu() for part in copy], number, 4)

    def test_a_graph_may_be_captured_while_batches_go(self):
        static = torch.zeros(4, 3, 64, 64, device="cuda")
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            static * 2  # cuBLAS and the like are set up outside of the graph
        for number, batch in enumerate(DataLoader(Images(), batch_size=4, num_workers=1, pin_memory=True)):
            static.copy_(batch[0], non_blocking=True)
            if number in (10, 20):
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    doubled = static * 2
                    del batch
                graph.replay()
                assert torch.equal(doubled, static * 2)

    def test_a_driver_that_refuses_in_the_middle_leaves_the_rest_to_the_thread(
        self, monkeypatch: pytest.MonkeyPatch
    ):
        class Refusing(CudaDriver):
            asked = 0

            def register(self, address: int, length: int) -> None:
                self.asked += 1
                if self.asked > 2:  # the trial was the first
                    raise CudaError("no more of it")
                super().register(address, length)

        monkeypatch.setattr(pinned_module, "process_driver", Refusing)
        loader = DataLoader(Images(), batch_size=4, num_workers=2, pin_memory=True)
        iterator = iter(loader)
        for number, batch in enumerate(iterator):
            check(batch, number, 4)
            assert batch[0].is_pinned() and batch[1].is_pinned()
        assert hasattr(iterator, "_pin_memory_thread")
        assert loader.report().pinned_by_copy == "no more of it"

    @pytest.mark.slow
    def test_epochs_leave_nothing_behind(self):
        loader = DataLoader(Images(80), batch_size=4, num_workers=1, pin_memory=True)
        found = []
        for _ in range(64):
            for number, batch in enumerate(loader):
                batch[0].to("cuda", non_blocking=True)
                if number == 0:
                    check(batch, 0, 4)
            del batch
            torch.cuda.synchronize()
            found.append(footprint())
        check_that_nothing_grows(found)

    def test_other_threads_may_iterate(self):
        def iterate() -> int:
            for number, batch in enumerate(iterator):
                check([part.to("cuda", non_blocking=True).cpu() for part in batch], number, 4)
            return number

        iterator = iter(DataLoader(Images(), batch_size=4, num_workers=2, pin_memory=True))
        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(iterate).result() == 39
