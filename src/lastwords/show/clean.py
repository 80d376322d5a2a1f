"""Text from a dead process, made safe for a terminal: it may hold escape sequences, on purpose or not."""

from __future__ import annotations

import unicodedata

from lastwords.show.secrets import mask

LONGEST = 2000
# Format characters that turn the direction of text, which can make a line read as something it is not.
_FORBIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def clean(text: str) -> str:
    """One line without control characters and secrets: white space becomes a space, the rest a visible sign."""
    cut = mask(text if len(text) <= LONGEST else f"{text[:LONGEST]}…")
    return "".join(_sign(character) for character in cut.strip())


def _sign(character: str) -> str:
    if character.isspace():
        return " "
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(character) in _FORBIDDEN else character
