"""How much shared memory each process of a job has made and not given back, over time.

Files of /dev/shm belong to nobody's resident size and outlive whoever made them: a worker that forgets to unlink them
fills the machine while every process looks small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

MOST_LOOKS = 96


class Share(NamedTuple):
    """At one moment, of one process. Bytes."""

    time_ns: int
    files: int
    size: int
    loose_files: int
    """Of the whole job: those of which nobody knows who made them, because he does not have them open any more."""
    loose_size: int
    all_size: int
    """Of all files that were not there before the job."""


Shares = tuple[Share, ...]
"""Oldest first."""


class NewFile(NamedTuple):
    """One that was not there before the job."""

    owner: int | None
    size: int


class SharedFiles:
    def __init__(self) -> None:
        self._shares: dict[int, list[Share]] = {}

    def note(self, now_ns: int, new: Iterable[NewFile], pids: Iterable[int]) -> bool:
        """True: there is more of it than when this was last called."""
        files, sizes = Counter[int | None](), Counter[int | None]()
        for one in new:
            files[one.owner] += 1
            sizes[one.owner] += one.size
        if not files and not self._shares:
            return False
        whole, has_grown = sizes.total(), False
        for pid in pids:
            known = self._shares.setdefault(pid, [])
            share = Share(now_ns, files[pid], sizes[pid], files[None], sizes[None], whole)
            has_grown |= bool(known) and share.all_size > known[-1].all_size
            known.append(share)
            if len(known) > MOST_LOOKS:
                self._shares[pid] = [known[0], *known[1 : len(known) // 2 : 2], *known[len(known) // 2 :]]
        return has_grown

    def take(self, pid: int) -> Shares:
        return tuple(self._shares.pop(pid, ()))
