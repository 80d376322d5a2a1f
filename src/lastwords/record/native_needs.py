"""Whether this CPU can run our own native module, asked before it is loaded and in Python alone.

A wheel for everybody needs the baseline and nothing else. One that was built with `-C target-cpu=native` would end
the user's process with SIGILL at its first unlucky instruction: it is refused with a sentence instead. What the build
needs is written in a section of the library itself (crates/python/src/needs.rs).
"""

from __future__ import annotations

import os
import struct

from lastwords.record import host

MODULE = "lastwords._native"
SECTION = b".lastwords.needs"
_HEADER = struct.Struct("<16s24xQ10xHHH")
"""The beginning of an ELF file: its magic; where its sections are told of, how long an entry is, how many, the names."""
_ENTRY = struct.Struct("<II16xQQ24x")
"""A section: where its name stands, its type, where it begins, how long it is."""
_MOST_SECTIONS, _LONGEST = 4096, 1 << 16


def check() -> None:
    """Raises ImportError where the module must not be loaded. What cannot be read is no reason."""
    wanted = needs(os.path.join(os.path.dirname(os.path.dirname(__file__)), "_native.abi3.so"))
    if not wanted:
        return
    found = host.cpuinfo()
    missing = sorted(wanted - set((found.get("flags") or found.get("Features") or "").split()))
    if found and missing:
        cpu = found.get("model name") or "this CPU"
        raise ImportError(
            f"this build of lastwords is for a CPU with {', '.join(missing)}, and {cpu} has none of it: "
            "install the wheel from the package index, or build without -C target-cpu",
            name=MODULE,
        )


def needs(path: str) -> frozenset[str]:
    """What the library at `path` says it needs; empty: nothing beyond the baseline, or nobody knows."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return frozenset()
    try:
        text = _section(descriptor)
    except (OSError, OverflowError, struct.error, IndexError):  # no file reaches beyond 2^63
        return frozenset()
    finally:
        os.close(descriptor)
    return frozenset(text.replace(b"\0", b" ").decode("ascii", "replace").split())


def _section(descriptor: int) -> bytes:
    magic, at, size, count, names_at = _HEADER.unpack(os.pread(descriptor, _HEADER.size, 0))
    # 64 bits, little endian: what we are built for.
    if magic[:6] != b"\x7fELF\x02\x01" or size != _ENTRY.size or count > _MOST_SECTIONS:
        return b""
    entries = list(_ENTRY.iter_unpack(os.pread(descriptor, size * count, at)))
    _, _, begin, length = entries[names_at]
    names = os.pread(descriptor, min(length, _LONGEST), begin)
    for name, _, begin, length in entries:
        if names[name : name + len(SECTION) + 1] == SECTION + b"\0":
            return os.pread(descriptor, min(length, _LONGEST), begin)
    return b""
