"""How far apart on the saved stack one return address stands: the size of one round of a recursion.

The native reader hands memory over in one form only, a minidump, so that is what is read here. None of these
bytes goes any further.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from itertools import pairwise

from lastwords import _native

MEMORY_LIST = 5
MOST_STREAMS, MOST_RANGES = 64, 256
FEWEST = 4
"""Fewer distances than this say nothing."""


def read(path: str | os.PathLike[str], address: int) -> bytes:
    """The saved memory that begins at `address`; empty where there is none."""
    try:
        dump = _native.minidump_box(os.fspath(path)) or b""
        return _range(dump, address)
    except (OSError, ValueError, struct.error):
        return b""


def _range(dump: bytes, address: int) -> bytes:
    signature, _, count, table = struct.unpack_from("<4sIII", dump)
    if signature != b"MDMP":
        return b""
    for number in range(min(count, MOST_STREAMS)):
        kind, _, place = struct.unpack_from("<III", dump, table + 12 * number)
        if kind == MEMORY_LIST:
            return _in_list(dump, place, address)
    return b""


def _in_list(dump: bytes, place: int, address: int) -> bytes:
    (count,) = struct.unpack_from("<I", dump, place)
    for number in range(min(count, MOST_RANGES)):
        start, size, at = struct.unpack_from("<QII", dump, place + 4 + 16 * number)
        if start <= address < start + size:
            return dump[at + address - start : at + size]
    return b""


def distance(stack: bytes, return_address: int) -> int | None:
    """The usual number of bytes from one such return address to the next."""
    wanted, places, found = return_address.to_bytes(8, "little"), list[int](), stack.find
    at = found(wanted)
    while at >= 0:
        places.append(at)
        at = found(wanted, at + 8)
    gaps = Counter(later - earlier for earlier, later in pairwise(places))
    if gaps.total() < FEWEST:
        return None
    return gaps.most_common(1)[0][0]
