"""A job on the standard library's process pool: 32 items, 2 workers."""

from concurrent.futures import ProcessPoolExecutor

from items import ITEMS, death, work

if __name__ == "__main__":
    death()
    with ProcessPoolExecutor(max_workers=2) as pool:
        print("sum", sum(pool.map(work, range(ITEMS))))
