"""This process's own box: a second name for it, for a parent that explains its death in words of its own; or none.

`lastwords run` puts the box of a dead process away as soon as it has explained it; an engine's agent looks every
hundred milliseconds or so, and would often come too late.
"""

from __future__ import annotations

import os

from lastwords.record.session import VARIABLE


def keep_own_box() -> None:
    """`<pid>.kept`, which `lastwords.postmortem.box_of` knows. Does nothing where nobody puts boxes away."""
    directory, box = _own_box()
    if box is None or not os.path.exists(os.path.join(directory, "watcher")):
        return
    kept = os.path.join(directory, f"{os.getpid()}.kept")
    try:
        os.unlink(kept)  # of an earlier process: numbers are used again
    except FileNotFoundError:
        pass
    os.link(os.path.join(directory, box), kept)


def drop_own_box() -> None:
    """This process is nobody's worker: how it ends is nobody's news. What it still writes goes nowhere."""
    directory, box = _own_box()
    if box is not None:
        os.unlink(os.path.join(directory, box))


def _own_box() -> tuple[str, str | None]:
    directory = os.environ.get(VARIABLE, "")
    try:
        names = os.listdir(directory) if directory else []
    except OSError:
        names = []
    own = [name for name in names if name.startswith(f"{os.getpid()}-") and name.endswith(".box")]
    return directory, max(own, default=None)
