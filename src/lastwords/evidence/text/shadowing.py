"""Files of the user's that have a standard module's name, and are imported in its place.

Python says so itself only from 3.13 on; before, the exception names the file that was found, and it is not Python's.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from lastwords.evidence.model import Mention
from lastwords.evidence.text.excerpt import Excerpt
from lastwords.evidence.text.reader import Reader, mention

MOST = 40
_WITH_FILE = re.compile(
    r"cannot import name '\w{1,80}' from (?:partially initialized module )?'(?P<module>\w{1,60})[\w.]{0,60}'"
    r".{0,80}?\((?:consider renaming '|most likely due to a circular import\) \()?(?P<file>[^()']{1,400}?)[')]"
    r"|module '(?P<bare>\w{1,60})[\w.]{0,60}' has no attribute .{1,80}\(consider renaming '(?P<renamed>[^']{1,400})'"
)
_NO_ATTRIBUTE = re.compile(r"module '(?P<module>\w{1,60})' has no attribute")
_FRAME = re.compile(r'File "(?P<file>[^"]{1,400})", line')
# Where interpreters keep the modules that came with them: /usr/lib64/python3.9/…, C:\\Python311\\Lib\\….
_STANDARD = re.compile(r"[/\\](?:lib|lib64|Lib)[/\\](?:python\d|[^/\\]+\.py$)|python3?\d*\.zip|<frozen")


def read(excerpt: Excerpt) -> Iterator[Mention]:
    for index in excerpt.with_needle("cannot import name", MOST) + excerpt.with_needle("no attribute", MOST):
        hidden = _hidden(excerpt, index)
        if hidden is not None:
            module, file = hidden
            yield mention("hidden-module", excerpt, index, "python", {"module": module, "file": file})


def _hidden(excerpt: Excerpt, index: int) -> tuple[str, str] | None:
    text = excerpt.lines[index].text
    named = _WITH_FILE.search(text)
    if named is not None:
        module, file = named["module"] or named["bare"], named["file"] or named["renamed"]
        return (module, file) if _hides(file, module) else None
    plain = _NO_ATTRIBUTE.search(text)
    return _in_frames(excerpt, plain["module"]) if plain is not None else None


def _in_frames(excerpt: Excerpt, module: str) -> tuple[str, str] | None:
    """The exception names no file; a frame of the traceback may be in one of that name."""
    for index in excerpt.with_needle(f"{module.lower()}.py", MOST):
        frame = _FRAME.search(excerpt.lines[index].text)
        if frame is not None and _hides(frame["file"], module):
            return module, frame["file"]
    return None


def _hides(file: str, module: str) -> bool:
    parts = re.split(r"[/\\]", file)
    is_named_so = parts[-1] == f"{module}.py" or parts[-2:] == [module, "__init__.py"]
    is_elsewhere = "site-packages" not in file and not _STANDARD.search(file)
    return is_named_so and is_elsewhere and module in sys.stdlib_module_names


READER = Reader("python", read=read)
