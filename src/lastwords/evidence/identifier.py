"""The id of a death: 8 hexadecimal digits, the same each time the same death is read."""

from __future__ import annotations

import hashlib
import re

LENGTH = 8
SHORTEST_PREFIX = 4
PATTERN = re.compile(rf"[0-9a-f]{{{LENGTH}}}")
PREFIX = re.compile(rf"[0-9a-f]{{{SHORTEST_PREFIX},{LENGTH}}}")


def identifier(*parts: object) -> str:
    """From what names the process for ever, e.g. its host, pid and start time."""
    text = "\0".join(map(str, parts))
    return hashlib.blake2s(text.encode("utf-8", "replace")).hexdigest()[:LENGTH]
