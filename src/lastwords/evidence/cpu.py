"""What this host's CPU is and can do, from /proc/cpuinfo."""

from __future__ import annotations

import platform
from pathlib import Path

from lastwords.evidence.model import Cpu

LARGEST = 1 << 16
"""The first processors are enough: one entry is about 2 KB, and a host may have hundreds."""


def this_host(cpuinfo: Path = Path("/proc/cpuinfo")) -> Cpu | None:
    try:
        with cpuinfo.open("rb") as file:
            text = file.read(LARGEST).decode("utf-8", "replace")
    except OSError:
        return None
    first = _fields(text.split("\n\n", 1)[0])
    flags = first.get("flags") or first.get("Features") or ""
    return Cpu(
        source=str(cpuinfo),
        architecture=platform.machine(),
        model=first.get("model name") or None,
        flags=tuple(sorted(flags.split())),
    )


def _fields(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
