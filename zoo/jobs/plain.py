"""A job in one process."""

from items import ITEMS, death, work

death()
print("sum", sum(work(item) for item in range(ITEMS)))
