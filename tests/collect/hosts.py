"""Deaths of several hosts, and a file server that has died."""

from __future__ import annotations

import contextlib
import ctypes
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from lastwords.evidence import Evidence
from tests.cases import evidence_of

MNT_FORCE_DETACH = 3


def death(host: str = "gpu-07", pid: int = 4711, name: str = "null-dereference", **changes) -> Evidence:
    found = evidence_of(name, death=f"{zlib.crc32(f'{host} {pid}'.encode()):08x}")
    assert found.process is not None
    process = msgspec.structs.replace(found.process, host=host, pid=pid)
    return msgspec.structs.replace(found, process=process, **{"time": 1e9 + pid, **changes})


@contextlib.contextmanager
def dead_mount(place: Path) -> Iterator[Path]:
    """A FUSE file system that nobody serves: whoever looks at it waits for an answer that never comes."""
    place.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        pytest.skip("needs /dev/fuse")
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"dead", os.fsencode(place), b"fuse.dead", 0, options) != 0:
        os.close(server)
        pytest.skip("needs the right to mount")
    try:
        yield place
    finally:
        libc.umount2(os.fsencode(place), MNT_FORCE_DETACH)
        os.close(server)  # whoever waits gets an error
