"""What this host is, in a few lines that hold no secret: a job leaves them at home, and a view of the fleet grows.

Where the home directory is shared, every host that ever ran a recorded job is in `HOME/hosts`.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCHEMA = "lastwords-host/1"
CPUINFO = "/proc/cpuinfo"
# Hosts change seldom; a machine that got another CPU over night is seen the next day.
FRESH_SECONDS = 86400.0
# One processor is enough, and an entry has about 2 KB: a host may have hundreds.
_LARGEST = 1 << 14


def remember(home: str) -> bool:
    """Writes `HOME/hosts/<name>.json` unless a fresh one is there. False: it could not be, which harms nobody."""
    try:
        place = os.path.join(home, "hosts")
        path = os.path.join(place, f"{_file_name(os.uname().nodename)}.json")
        if _is_fresh(path):
            return True
        os.makedirs(place, mode=0o700, exist_ok=True)
        _write(path, facts())
    except (OSError, ValueError):
        return False
    return True


def facts() -> dict[str, Any]:
    """Measured now, by nothing but the kernel's own words."""
    system, cpu = os.uname(), cpuinfo()
    return {
        "schema": SCHEMA,
        "host": system.nodename,
        "time": int(time.time()),
        "architecture": system.machine,
        "kernel": system.release,
        "cpu_model": cpu.get("model name") or cpu.get("CPU part") or None,
        "cpu_vendor": cpu.get("vendor_id") or cpu.get("CPU implementer") or None,
        "cpu_family": _number(cpu.get("cpu family")),
        "cpu_number": _number(cpu.get("model")),
        "cpu_stepping": _number(cpu.get("stepping")),
        "features": sorted((cpu.get("flags") or cpu.get("Features") or "").split()),
        "cpus": os.cpu_count(),
        "memory": _memory(),
    }


def cpuinfo(path: str = CPUINFO) -> dict[str, str]:
    """The first processor of /proc/cpuinfo. Empty: it cannot be read."""
    try:
        with open(path, "rb") as file:
            text = file.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.split("\n\n", 1)[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _is_fresh(path: str) -> bool:
    try:
        return abs(time.time() - os.stat(path).st_mtime) < FRESH_SECONDS
    except OSError:
        return False


def _file_name(host: str) -> str:
    kept = "".join(sign if sign.isalnum() or sign in "-_." else "_" for sign in host)[:200]
    return kept.lstrip(".") or "host"


def _write(path: str, found: dict[str, Any]) -> None:
    """By rename: two jobs may begin in the same moment, and a reader must never see half a file."""
    import json

    half = f"{path}.{os.getpid()}"
    with open(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(found, file)
    os.replace(half, path)


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
