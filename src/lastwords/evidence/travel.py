"""What of a death may leave its host: the facts, without secrets and without the process's own data.

The box, which holds memory, stays where it is. Of the facts themselves only text can give something away: the words
of a command line, a message, and the few bytes that registers point at.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from lastwords.evidence.model import Evidence, Pointer

MASK = "***"
_SENSITIVE = (
    r"(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)"
)
# `--hub-token`, after which the next word is the secret.
_OPTION = re.compile(rf"--?[\w-]*{_SENSITIVE}[\w-]*", re.IGNORECASE)
# `DB_PASSWORD=…`, `"token": "…"`; a word alone ("unexpected token") is no secret.
_NAMED = re.compile(rf"([\w-]*{_SENSITIVE}[\w-]*[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&]+", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(://[^/\s:@]*):[^/\s@]+@")
_KNOWN = re.compile(
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"  # AWS
    r"|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{20,}"
    r"|\bhf_[A-Za-z0-9]{20,}|\bsk-[\w-]{20,}|\bxox[abprs]-[\w-]{10,}"
    r"|\beyJ[\w-]{10,}\.[\w-]+\.[\w-]+"  # a JSON web token
    r"|\bBearer\s+[\w.~+/-]{16,}=*"
)
_TEXT = re.compile(rb"[\x20-\x7e]{6,}")
"""Six letters in a row are rarely an accident; an address never has that many."""


def packed(evidence: Evidence) -> bytes:
    """As JSON, fit to travel. `lastwords.evidence.store` keeps the same form."""
    pointers = evidence.pointers
    if pointers is not None:
        evidence = msgspec.structs.replace(evidence, pointers=tuple(map(_without_text, pointers)))
    return msgspec.json.encode(_masked(msgspec.to_builtins(evidence)))


def masked(text: str) -> str:
    text = _KNOWN.sub(MASK, text)
    text = _IN_ADDRESS.sub(rf"\1:{MASK}@", text)
    return _NAMED.sub(rf"\1{MASK}", text)


def _masked(value: Any) -> Any:
    match value:
        case str():
            return masked(value)
        case dict():
            return {key: _masked(one) for key, one in value.items()}
        case list() | tuple():
            before = [None, *value]
            return [
                MASK if _is_secret_option(last) and isinstance(one, str) else _masked(one)
                for last, one in zip(before, value, strict=False)
            ]
        case _:
            return value


def _is_secret_option(word: object) -> bool:
    return isinstance(word, str) and _OPTION.fullmatch(word) is not None


def _without_text(pointer: Pointer) -> Pointer:
    """Cut before the first text, and not overwritten: bytes that were never there would mislead the causes."""
    try:
        content = bytes.fromhex(pointer.bytes)
    except ValueError:
        return msgspec.structs.replace(pointer, bytes="")
    found = _TEXT.search(content)
    return (
        pointer if found is None else msgspec.structs.replace(pointer, bytes=content[: found.start()].hex())
    )
