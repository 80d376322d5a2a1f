"""Adding words to an exception that keeps its type, its arguments and its place."""

from __future__ import annotations

from typing import Any

MARK = "lastwords"


def add(error: BaseException, text: str) -> None:
    """As a note, which every traceback shows and pickle keeps; Python 3.10 has none, so the message gets it.

    Only once: an exception that is raised again on its way up has been here.
    """
    if text in getattr(error, "__notes__", ()):
        return
    note: Any = getattr(error, "add_note", None)
    if note is not None:
        note(text)
    elif error.args and isinstance(error.args[0], str) and text not in error.args[0]:
        error.args = (f"{error.args[0]}\n{text}", *error.args[1:])
