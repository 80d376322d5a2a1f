"""One call from what a user has to a diagnosis."""

from __future__ import annotations

import os

from lastwords.diagnosis.diagnose import diagnose
from lastwords.diagnosis.model import Diagnosis
from lastwords.evidence import Evidence, UnreadableBox, from_box
from lastwords.evidence.core import from_core, is_core
from lastwords.evidence.text import from_log, from_text

LONGEST_PATH = 4096


def explain(text_or_path: str | os.PathLike[str]) -> Diagnosis:
    """Explains a death from a black box, a core file, a log file, or the text of a log itself.

    A string that names a file is taken as that file's path, any other as text. Raises OSError if the file cannot
    be read, and a ValueError (UnreadableBox, UnreadableCore, UnreadableLog) if it is a box or a core that is damaged, or
    an archive of a kind that is not unpacked here.
    """
    if isinstance(text_or_path, str) and not _is_file(text_or_path):
        return diagnose(from_text(text_or_path))
    return diagnose(from_file(text_or_path))


def from_file(path: str | os.PathLike[str]) -> Evidence:
    """Whatever it is: boxes and cores say so in their first bytes, and everything else is text."""
    if is_core(path):
        return from_core(path)
    try:
        return from_box(path)
    except UnreadableBox as error:
        if not is_text(path) or isinstance(error.__cause__, OSError):
            raise
    return from_log(path)


def is_text(path: str | os.PathLike[str]) -> bool:
    """By name and head: a damaged box is no log, and neither is a program."""
    if os.fspath(path).endswith(".box"):
        return False
    with open(path, "rb") as file:
        return file.read(4) != b"\x7fELF"


def _is_file(text: str) -> bool:
    if "\n" in text or len(text) > LONGEST_PATH:
        return False
    try:
        return os.path.lexists(text)
    except ValueError:  # a NUL byte: no path, so text
        return False
