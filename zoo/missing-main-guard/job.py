"""Workers are spawned by a module that has no guard: each worker imports it, and would start workers again."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor


def work(item):
    return item * item


with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
    print("sum", sum(pool.map(work, range(32))))
