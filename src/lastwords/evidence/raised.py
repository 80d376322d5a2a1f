"""The Python exception that ended a process, followed back to the worker and the item that raised it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from lastwords.evidence import box as raw
from lastwords.evidence.exit_call import is_exit
from lastwords.evidence.model import Item, PythonException, PythonFrame

SOURCE = "the exception that nothing caught"
WORKER_SOURCE = "the exception as the worker recorded it, before it was passed on"
BROKEN_POOL = "BrokenProcessPool"
JUST_BEFORE_NS = 5_000_000_000
# How torch's DataLoader wraps what a worker raised (torch/_utils.py); the text of the original follows.
_TORCH = re.compile(r"Caught (\S{1,200}) in DataLoader worker process (\d{1,6})")


def exception(own: raw.Box, related: Sequence[raw.Box]) -> PythonException | None:
    """The one that killed the process `own` belongs to; the worker's own account of it where there is one."""
    last = _fatal(own)
    if last is None:
        return None
    here = _model(last, own, SOURCE)
    if here.item is not None:
        return here
    same = max(_matches(last, own, related), key=_when, default=None)
    found = same or max(_passed_on(last, related), key=_when, default=None)
    if found is None:
        return here
    return msgspec.structs.replace(
        _model(*found, WORKER_SOURCE),
        fatal=True,
        surfaced=here.frames,
        broke=None if same else _short(last.kind),
    )


def _when(pair: tuple[raw.Raised, raw.Box]) -> int:
    return pair[0].time_ns or 0


def _passed_on(last: raw.Raised, related: Sequence[raw.Box]) -> Iterator[tuple[raw.Raised, raw.Box]]:
    """What workers had just sent back when the pool broke.

    A worker that dies breaks its pool too, but then it is that death that is told, and not its parent's end. So
    nobody died, and what breaks a pool then is an exception that cannot be made again from its pickle.
    """
    if _short(last.kind) != BROKEN_POOL:
        return
    for box in related:
        for raised in box.exceptions:
            age = (last.time_ns or 0) - (raised.time_ns or 0)
            if not raised.fatal and not is_exit(raised) and 0 <= age <= JUST_BEFORE_NS:
                yield raised, box


def _fatal(box: raw.Box) -> raw.Raised | None:
    return next((raised for raised in reversed(box.exceptions) if raised.fatal), None)


def _matches(
    last: raw.Raised, own: raw.Box, related: Sequence[raw.Box]
) -> Iterator[tuple[raw.Raised, raw.Box]]:
    """Earlier records of the same exception: those this process caught itself, then those of others."""
    for box in (own, *related):
        for raised in box.exceptions:
            is_earlier = raised is not last and (raised.time_ns or 0) <= (last.time_ns or 0)
            if is_earlier and _is_same(raised, box, last):
                yield raised, box


def _is_same(raised: raw.Raised, box: raw.Box, last: raw.Raised) -> bool:
    torch = _TORCH.search(last.message)
    if torch:
        worker = box.identity.worker if box.identity else None
        return _short(raised.kind) == _short(torch[1]) and worker in (None, int(torch[2]))
    if _short(raised.kind) != _short(last.kind):
        return False
    # A message is cut to the record's size, and then ends in an ellipsis.
    message = raised.message.removesuffix("…")
    return message in last.message if message else not last.message


def _short(kind: str) -> str:
    return kind.rpartition(".")[2]


def _model(raised: raw.Raised, box: raw.Box, source: str) -> PythonException:
    has_item = raised.index is not None or raised.key is not None
    return PythonException(
        source=source,
        kind=raised.kind,
        message=raised.message,
        frames=frames(raised.frames),
        item=Item(source=source, key=raised.key, index=raised.index) if has_item else None,
        pid=box.identity.pid if box.identity else None,
        worker=box.identity.worker if box.identity else None,
        fatal=raised.fatal,
    )


def frames(found: Sequence[raw.Frame]) -> tuple[PythonFrame, ...]:
    return tuple(PythonFrame(file=one.file, line=one.line, function=one.function) for one in found)
