"""Deaths that nobody watched: jobs that called `lastwords.enable()` by themselves, and runs whose watcher was killed.

Their boxes lie in the run's directory. Whoever asks next what has died takes them up: a box of a process that is
gone is a death if it says so itself (a crash, an exception that nothing caught, an item that was never finished).
How the process ended in the kernel's eyes is then not known, and said to be not known.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from lastwords.evidence import box as raw
from lastwords.evidence.assemble import from_box
from lastwords.evidence.ordered import with_orders
from lastwords.evidence.store import Store
from lastwords.watch import orders
from lastwords.watch.proc import stat_fields
from lastwords.watch.run_directory import SOCKET

START_TICKS = 19
"""Field 22 of /proc/PID/stat, counted behind the name."""


def take_up(home: str | os.PathLike[str]) -> int:
    """Moves what it finds into the store; how many deaths that were. Never raises: the store may be read-only."""
    found = 0
    for directory in _runs(Path(home) / "runs"):
        with contextlib.suppress(OSError):
            found += _take_up_run(Store(home), directory)
    return found


def _runs(runs: Path) -> list[Path]:
    """Those that nobody watches: a living watcher, or a living process that began the run, knows better."""
    try:
        every = sorted(path for path in runs.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return []
    return [path for path in every if not _is_owned(path)]


def _is_owned(directory: Path) -> bool:
    owner = directory.name.rpartition("-")[2]
    is_alive = owner.isdigit() and bool(stat_fields(int(owner)))
    # Without a socket the owner only began the run and watches nobody, itself least of all.
    return is_alive and (directory / SOCKET).exists()


def _take_up_run(store: Store, directory: Path) -> int:
    boxes = {path: _read(path) for path in sorted(directory.glob("*.box"))}
    gone = {path: box for path, box in boxes.items() if not _is_alive(box)}
    deaths = [path for path, box in gone.items() if box is not None and is_death(box)]
    heard = orders.read(os.fspath(directory))
    for path in deaths:
        found = from_box(path, None, [other for other in boxes if other != path])
        store.put(with_orders(found, heard), path)
    if len(gone) == len(boxes):
        _remove(directory)
    return len(deaths)


def _read(path: Path) -> raw.Box | None:
    try:
        return raw.read(path)
    except raw.UnreadableBox:
        return None


def _is_alive(box: raw.Box | None) -> bool:
    """The same process, not another that has its number now. In a container whose first process buries nobody, the dead stay
    in /proc.
    """
    if box is None or box.identity is None:
        return False
    fields = stat_fields(box.identity.pid)
    is_there = len(fields) > START_TICKS and fields[0] not in ("Z", "X")
    return is_there and fields[START_TICKS] == str(box.identity.start_ticks)


def is_death(box: raw.Box) -> bool:
    live = box.live or raw.Live()
    if box.crash is not None and box.crash.state in ("begun", "complete"):
        return True
    if any(error.fatal for error in box.exceptions):
        return True
    return live.current is not None and not live.exit_said


def _remove(directory: Path) -> None:
    for path in directory.iterdir():
        with contextlib.suppress(OSError):
            path.unlink()
    with contextlib.suppress(OSError):
        directory.rmdir()


__all__ = ["is_death", "take_up"]
