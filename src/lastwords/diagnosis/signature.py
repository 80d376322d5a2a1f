"""The short text by which deaths of the same kind are grouped.

It holds for other addresses, hosts, items and build paths: cause, then the innermost functions that matter, then
the library; for Python the exception and the line's function.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from lastwords.diagnosis.model import Verdict
from lastwords.evidence.frames import blamed, python_frames, short_function, short_library, yours
from lastwords.evidence.model import Evidence

MOST_FUNCTIONS = 2
LONGEST = 200
_VERSIONED = re.compile(r"(\.so)(\.\d+)+$")


def signature(evidence: Evidence, best: Verdict | None) -> str:
    parts = [best.id if best else "unknown", *_native(evidence), *_python(evidence)]
    if len(parts) == 1 and evidence.status is not None:
        parts.append(evidence.status.signal or f"exit {evidence.status.exit_code}")
    return " | ".join(parts)[:LONGEST]


def _native(evidence: Evidence) -> list[str]:
    first, stack = blamed(evidence), evidence.native_stack
    if first is None or stack is None:
        return []
    start = stack.frames.index(first)
    named = [frame for frame in stack.frames[start:] if frame.function and frame.library == first.library]
    # A function inlined into itself is one function to a reader.
    functions = list(dict.fromkeys(short_function(frame.function or "") for frame in named))[:MOST_FUNCTIONS]
    library = [_VERSIONED.sub(r"\1", short_library(first.library))] if first.library else []
    return [*functions, *library]


def _python(evidence: Evidence) -> list[str]:
    frame = yours(python_frames(evidence))
    kind = [evidence.exception.kind] if evidence.exception else []
    return [*kind, f"{PurePath(frame.file).name}:{frame.function}"] if frame else kind
