"""The deaths of a fleet, read from where they were collected. Like `Store`, for many hosts; nothing there is trusted."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lastwords.evidence import identifier
from lastwords.evidence.model import Evidence
from lastwords.evidence.places import MOST_NAMES, NAME, Place
from lastwords.evidence.store import AmbiguousId, NoSuchDeath

_EVIDENCE = msgspec.json.Decoder(Evidence)


class Gathered:
    def __init__(self, place: Place) -> None:
        self._place = place
        self.notes: list[str] = []
        """What was skipped while reading, for maintainers."""

    def all(self) -> tuple[Evidence, ...]:
        """Newest first. Raises PlaceAway."""
        names = self._place.names()
        if len(names) >= MOST_NAMES:
            self.notes.append(f"{self._place.url}: the newest {MOST_NAMES} deaths; there may be more")
        found = self._read(names)
        return tuple(sorted(found, key=lambda one: one.time or 0.0, reverse=True))

    def get(self, prefix: str) -> Evidence:
        """The death whose id begins so. Raises NoSuchDeath, AmbiguousId, PlaceAway."""
        named = {name: _id(name) for name in self._place.names()}
        names = [name for name, death in named.items() if death.startswith(prefix)]
        if not identifier.PREFIX.fullmatch(prefix) or not names:
            raise NoSuchDeath(prefix)
        if len(names) > 1:
            raise AmbiguousId(prefix, tuple(named[name] for name in names))
        found = self._read(names)
        if not found:
            raise NoSuchDeath(prefix)
        return found[0]

    def _read(self, names: Sequence[str]) -> list[Evidence]:
        found = (self._decoded(name, content) for name, content in self._place.read(names))
        return [one for one in found if one is not None]

    def _decoded(self, name: str, content: bytes | None) -> Evidence | None:
        try:
            if content is None:
                raise ValueError("cannot be read")
            return msgspec.structs.replace(_EVIDENCE.decode(content), id=_id(name))
        except ValueError as error:
            self.notes.append(f"{self._place.url}: {name}: skipped: {error}")
            return None


def _id(name: str) -> str:
    found = NAME.fullmatch(name)
    assert found is not None, name
    return found["id"]
