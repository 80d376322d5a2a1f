"""A dictionary of the module is filled after the workers were forked: theirs stay empty."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

labels: dict[int, str] = {}


def register(count: int) -> None:
    for item in range(count):
        labels[item] = f"class {item % 10}"


def work(item: int) -> int:
    return len(labels[item])


if __name__ == "__main__":
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(max_workers=1, mp_context=fork) as pool:
        pool.submit(int).result()  # now the worker is there
        register(32)
        print("sum", sum(pool.map(work, range(32))))
