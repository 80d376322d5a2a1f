"""Hides what looks like a secret: command lines, messages and source lines are shown to more people than the job is.

The evidence on disk keeps what was recorded; it is its owner's alone.
"""

from __future__ import annotations

import re

HIDDEN = "***"
_NAME = r"(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)"
_PATTERNS = (
    # --token VALUE, password=VALUE, "api_key": "VALUE", AWS_SECRET_ACCESS_KEY=VALUE
    re.compile(
        rf"(?i)(--?[\w-]{{0,40}}{_NAME}[= ]['\"]?|\b\w{{0,40}}{_NAME}['\"]?\s?[=:]\s?['\"]?)([^\s'\",;&]{{3,}})"
    ),
    # https://user:VALUE@host
    re.compile(r"(://[^/\s:@]{1,100}:)([^/\s@]{1,200})(?=@)"),
    re.compile(r"(?i)(\bbearer )([\w.~+/=-]{8,})"),
    # Keys whose makers gave them a recognisable beginning.
    re.compile(
        r"()(\b(?:AKIA[0-9A-Z]{16}|gh[pousr]_\w{30,}|hf_\w{30,}|sk-[\w-]{20,}|xox[abprs]-[\w-]{10,})\b)"
    ),
)


def mask(text: str) -> str:
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return text


def mask_all(value: object) -> object:
    """The same for every text in a JSON value."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {key: mask_all(one) for key, one in value.items()}
    return [mask_all(one) for one in value] if isinstance(value, (list, tuple)) else value
