"""What a descriptor of a living process is, for one that is blocked on it. Asks /proc alone, never the file itself: the
file system that it lies on may be the one that does not answer.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket

MOST_BYTES = 1 << 20
_SOCKET = re.compile(r"socket:\[(\d+)\]")


def name_of(pid: int, number: int) -> str | None:
    """A path, `pipe:[17]`, `a connection to 10.0.0.5:443`; None: it has no such descriptor, or hides it."""
    with contextlib.suppress(OSError):
        link = os.readlink(f"/proc/{pid}/fd/{number}")
        found = _SOCKET.fullmatch(link)
        peer = _peer(pid, found[1]) if found else None
        return f"a connection to {peer}" if peer else link
    return None


def _peer(pid: int, inode: str) -> str | None:
    """The other end of a TCP connection of the process's own network namespace."""
    for family, name in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        for line in _lines(f"/proc/{pid}/net/{name}"):
            words = line.split()
            if len(words) > 9 and words[9] == inode:
                return address(family, words[2])
    return None


def _lines(path: str) -> list[str]:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return file.read(MOST_BYTES).decode("ascii", "replace").splitlines()[1:]
    return []


def address(family: socket.AddressFamily, text: str) -> str | None:
    """`0500000A:01BB` is 10.0.0.5:443: words of 32 bits as the processor has them, then the port. None: no peer."""
    host, _, port = text.partition(":")
    try:
        words = [bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8)]
        name, number = socket.inet_ntop(family, b"".join(words)), int(port, 16)
    except (OSError, ValueError):
        return None
    if not number:
        return None
    return f"[{name}]:{number}" if family == socket.AF_INET6 else f"{name}:{number}"
