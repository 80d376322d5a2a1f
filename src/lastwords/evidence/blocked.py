"""What a blocked thread waits for, and where that lies: the file of its call or of its page, and the file system of it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from lastwords.evidence import syscalls
from lastwords.watch.outside import Inside
from lastwords.watch.spaces import IN_USER_SPACE, OF_A_NETWORK, Mount
from lastwords.watch.threads import Thread

SERVED = (*IN_USER_SPACE, *OF_A_NETWORK)
"""How the kinds of file systems begin that another process or another machine answers for, or does not."""
PAGE_FAULT = "a page fault"
"""In place of a call: it waits for a page of its memory that has to be read from somewhere."""


def blocked_on(
    call: str | None, thread: Thread | None, inside: Inside | None, mounts: Mapping[str, Mount]
) -> str | None:
    if thread is None or call is None:
        return None
    if call in syscalls.ON_A_DESCRIPTOR:
        return thread.first_descriptor
    if call in syscalls.ON_A_PATH:
        return _path(syscalls.ON_A_PATH[call], thread, inside)
    return _page(inside, mounts) if call == PAGE_FAULT else None


def _path(argument: int, thread: Thread, inside: Inside | None) -> str | None:
    if inside is None or len(inside.texts) <= argument:
        return None
    text = inside.texts[argument]
    directory = (thread.first_descriptor if argument else None) or inside.working_directory
    if not text:  # AT_EMPTY_PATH: the directory itself is meant, and may be a file.
        return directory if text is not None else None
    return os.path.join(directory or "", text)


def _page(inside: Inside | None, mounts: Mapping[str, Mount]) -> str | None:
    """The only file in its memory that somebody else has to send. Which of several it is, nobody can say."""
    found = [path for path in (inside.mapped if inside else ()) if is_served(mount_of(path, mounts))]
    return found[0] if len(found) == 1 else None


def is_served(mount: Mount | None) -> bool:
    return mount is not None and mount.kind.startswith(SERVED)


def mount_of(path: str | None, mounts: Mapping[str, Mount]) -> Mount | None:
    """The nearest above. Looks at the words of the path alone; `pipe:[7]` and the like lie nowhere."""
    if path is None or not path.startswith("/"):
        return None
    while path not in mounts and path != (above := os.path.dirname(path)):
        path = above
    return mounts.get(path)
