"""Epoch after epoch while workers are killed: every epoch is the undisturbed one, and nothing grows.

As a test it is small. `make soak-loader` runs the large one, an hour with five kills a second:

    python -m tests.loader.test_soak --seconds 3600 --rate 5
"""

from __future__ import annotations

import argparse
import gc
import logging
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch

from lastwords.torch import DataLoader
from tests.loader.subjects import Augmented, digest, kill, serving

pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore:This DataLoader will create")]

WORKERS = 2
MOST_GROWTH = 24 << 10
"""KiB by which later epochs may be larger than earlier ones: an allocator's own ups and downs."""


class Footprint(NamedTuple):
    """Of this process, between two epochs."""

    descriptors: int
    own: int
    """KiB that are backed by no file."""
    shared: int
    """KiB of shared memory that it has mapped."""


def footprint() -> Footprint:
    gc.collect()
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return Footprint(
        len(os.listdir("/proc/self/fd")),
        int(fields["RssAnon"].split()[0]),
        int(fields["RssShmem"].split()[0]),
    )


class Killer:
    """So many kills a second, and never two before the loader has heard of the first and given another batch."""

    def __init__(self, rate: float) -> None:
        self._seconds = 1 / rate
        self._due = time.monotonic()
        self._random = random.Random(3)
        self.kills = self.deaths = 0
        """A worker that is killed behind its last batch is not noticed by its loader, and counts as no death."""

    def disturbed(self, iterator: Any) -> Iterator[Any]:
        killed, supervisor = 0, iterator._supervisor
        for batch in iterator:
            if time.monotonic() >= self._due and supervisor.deaths == killed:
                hit = kill(serving(supervisor), self._random)
                killed, self.kills = killed + hit, self.kills + hit
                self._due = max(self._due + self._seconds, time.monotonic())
            yield batch
        self.deaths += supervisor.deaths


def epoch() -> Any:
    torch.manual_seed(17)
    return iter(DataLoader(Augmented(400), batch_size=8, shuffle=True, num_workers=WORKERS))


def soak(killer: Killer, is_enough: Callable[[int], bool]) -> list[Footprint]:
    """The footprint after each epoch. Raises AssertionError if one epoch is not the undisturbed one."""
    healthy, found = digest(epoch()), []
    while not is_enough(killer.deaths):
        assert digest(killer.disturbed(epoch())) == healthy
        found.append(footprint())
    return found


def check_that_nothing_grows(found: list[Footprint]) -> None:
    third = max(1, len(found) // 3)
    first, last = found[1 : third + 1], found[-third:]
    for name in ("own", "shared"):
        before, after = (statistics.median(getattr(one, name) for one in part) for part in (first, last))
        assert after - before <= MOST_GROWTH, f"{name}: {before} KiB, later {after} KiB"
    assert min(one.descriptors for one in last) <= min(one.descriptors for one in first)


@pytest.mark.slow
def test_killed_again_and_again_nothing_grows():
    killer = Killer(math.inf)
    found = soak(killer, lambda deaths: deaths >= 40)
    check_that_nothing_grows([*found, footprint()])
    assert killer.deaths >= 40


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--rate", type=float, default=5, help="kills a second")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    end = time.monotonic() + options.seconds
    killer = Killer(options.rate)
    found = soak(killer, lambda _: time.monotonic() >= end)
    check_that_nothing_grows(found)
    print(
        f"{len(found)} epochs, {killer.kills} kills ({killer.kills / options.seconds:.2f} a second), "
        f"{killer.deaths} of them noticed by the loader; every epoch was the undisturbed one"
    )
    for name, part in (("first", found[1]), ("last", found[-1])):
        print(f"{name:5} {part.descriptors} descriptors, {part.own} KiB of its own, {part.shared} KiB shared")
    return 0


if __name__ == "__main__":
    sys.exit(main())
