"""A record in memory that two workers share: item 5 reads it while item 6 replaces it. For animals with a job of their own."""

import functools
import mmap

import lastwords
from zoo import native

READS, REPLACES, ITEMS = 5, 6, 32
zooshared = native.load("zooshared")
shared = mmap.mmap(-1, 4096)
zooshared.make_record(shared)


def run(policy: lastwords.Policy | None = None, *, is_filled: bool) -> None:
    """`is_filled`: what replaces the record is whole, and only whoever reads it meanwhile meets the gap."""
    with lastwords.ProcessPoolExecutor(max_workers=2, policy=policy) as pool:
        futures = [pool.submit(functools.partial(work, is_filled=is_filled), item) for item in range(ITEMS)]
        print("sum", sum(future.result() for future in futures))


def work(item: int, *, is_filled: bool) -> int:
    if item == READS:
        read(item)
    elif item == REPLACES:
        zooshared.replace_record(shared, is_filled)
    return item * item


def read(item: int) -> None:
    zooshared.read_record(shared)
