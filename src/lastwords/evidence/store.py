"""The deaths of this host: one directory each, `HOME/deaths/<id>/`, with `evidence.json` and the `box` beside it.

Boxes hold memory of the process, so nobody else may read them: directories 0700, files 0600. Whatever is found
there later is taken as hostile: what cannot be read is skipped and noted, never raised. How many are kept: `room`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from lastwords.evidence import identifier, room
from lastwords.evidence.model import Evidence, TriedAlone

COLLECT = "LASTWORDS_COLLECT"
MOST_ATTEMPTS = 100


class NoSuchDeath(LookupError):
    """No death here has this id."""


class AmbiguousId(LookupError):
    """More than one id begins so; `ids` are they."""

    def __init__(self, prefix: str, ids: tuple[str, ...]) -> None:
        super().__init__(prefix)
        self.ids = ids


_EVIDENCE = msgspec.json.Decoder(Evidence)


class Store:
    def __init__(self, home: str | os.PathLike[str]) -> None:
        self.directory = Path(home) / "deaths"
        self.notes: list[str] = []
        """What was skipped while reading, for maintainers."""

    def put(self, evidence: Evidence, box: str | os.PathLike[str] | None = None) -> Evidence:
        """Keeps a death, and moves its box beside it. Returns the evidence with the id it got.

        Raises OSError where the directory cannot be written.
        """
        evidence = self._with_free_id(msgspec.structs.replace(evidence, id=_identifier(evidence)))
        place = self.directory / evidence.id
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        if box is not None and Path(box).exists():
            shutil.move(os.fspath(box), place / "box")
            (place / "box").chmod(0o600)
        _write(place / "evidence.json", msgspec.json.encode(evidence))
        room.make_room(self.directory)
        self._post(evidence)
        return evidence

    def learn(self, death: str, found: TriedAlone) -> Evidence:
        """Adds to a death what was found out after it, in one step: a disk that is full leaves it as it was.

        Raises OSError where it cannot be written, NoSuchDeath where it has been removed.
        """
        evidence = msgspec.structs.replace(self.get(death), tried_alone=found)
        _write(self.directory / evidence.id / "evidence.json", msgspec.json.encode(evidence))
        self._post(evidence)
        return evidence

    def _post(self, evidence: Evidence) -> None:
        """To where a fleet's deaths are collected, if there is such a place."""
        url = os.environ.get(COLLECT)
        if url:
            from lastwords.evidence import sending

            sending.post(self.directory.parent, url, evidence)

    def get(self, prefix: str) -> Evidence:
        """The death whose id begins with `prefix`, of at least four digits."""
        ids = tuple(name for name in self._names() if name.startswith(prefix))
        if not identifier.PREFIX.fullmatch(prefix) or not ids:
            raise NoSuchDeath(prefix)
        if len(ids) > 1:
            raise AmbiguousId(prefix, ids)
        found = self._read(ids[0])
        if found is None:
            raise NoSuchDeath(prefix)
        return found

    def all(self) -> tuple[Evidence, ...]:
        """Newest first."""
        found = (self._read(name) for name in self._names())
        return tuple(sorted(filter(None, found), key=lambda one: one.time or 0.0, reverse=True))

    @property
    def dropped(self) -> int:
        """How many deaths are no longer here, because there was no room for more."""
        return room.dropped(self.directory)

    def box_of(self, death: str) -> Path | None:
        path = self.directory / death / "box"
        return path if path.is_file() else None

    def _names(self) -> Iterator[str]:
        with contextlib.suppress(OSError):
            yield from sorted(room.names_in(self.directory))

    def _read(self, name: str) -> Evidence | None:
        path = self.directory / name / "evidence.json"
        try:
            with path.open("rb") as file:
                found = _EVIDENCE.decode(file.read(room.LARGEST))
        except (OSError, ValueError) as error:
            self.notes.append(f"{path}: skipped: {error}")
            return None
        return msgspec.structs.replace(found, id=name)

    def _with_free_id(self, evidence: Evidence) -> Evidence:
        """The same death again takes its own place again; another one with the same id gets a new id."""
        for attempt in range(MOST_ATTEMPTS):
            there = self._read(evidence.id) if (self.directory / evidence.id).exists() else None
            if there is None or _is_same_death(there, evidence):
                return evidence
            evidence = msgspec.structs.replace(evidence, id=identifier.identifier(evidence.id, attempt))
        return evidence


def _identifier(evidence: Evidence) -> str:
    process, status = evidence.process, evidence.status
    who = (process.host, process.pid, process.started) if process else ()
    how = (status.signal, status.exit_code) if status else ()
    return identifier.identifier(*who, *how, evidence.time)


def _is_same_death(one: Evidence, other: Evidence) -> bool:
    return (one.process, one.time) == (other.process, other.time)


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all: a reader never sees half of it."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
