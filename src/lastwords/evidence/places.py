"""Where the deaths of many hosts come together: a directory that they share, or anything that fsspec can write.

    PLACE/2026-11-16/2026-11-16T05-16-28.123456Z_gpu-07_3f9c01aa_4711_7f3a90c1.json

One file for each death, in a folder for each day. Time, host, boot of the host, pid and the death's id make a name that
no other host can give, and the same death has the same name again: whoever is not sure whether a file arrived sends
it once more. A file appears whole or not at all. What lies there is hostile: everybody of the fleet may write.

A collector that takes deaths over the network would be a third class here: `put`, `names` and `read` are all it needs.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lastwords.evidence.model import Evidence

LARGEST = 16 << 20
MOST_NAMES = 10_000
AT_ONCE = 64
"""Objects that are fetched together: a round trip takes longer than the reading."""
NAME = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)T[\d.-]{8,20}Z_(?P<host>[\w.-]{1,64})_[0-9a-f]{8}_\d{1,10}_(?P<id>[0-9a-f]{8})\.json",
    re.ASCII,
)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
# Where one request stores an object, whole; elsewhere it is written under another name and renamed.
_STORED_WHOLE = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "memory"})


class PlaceAway(Exception):
    """The place cannot be reached or written now; the text says why, `then` what would help."""

    def __init__(self, why: str, then: str = "") -> None:
        super().__init__(why)
        self.then = then


class Place(Protocol):
    @property
    def url(self) -> str: ...

    def put(self, name: str, content: bytes) -> None:
        """Stores it, whole or not at all. Raises PlaceAway."""

    def names(self) -> list[str]:
        """Of the deaths that lie there, newest first, no more than MOST_NAMES. Raises PlaceAway."""

    def read(self, names: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        """Each with its content, or None where that cannot be had."""


def whole(url: str) -> str:
    """The same place, also when it is read in another directory."""
    if url.startswith("file://"):
        url = url.removeprefix("file://")
    return url if _SCHEME.match(url) else os.path.abspath(os.path.expanduser(url))


def open_place(url: str) -> Place:
    """Raises PlaceAway where nobody here can speak to such a place."""
    url = whole(url)
    return _Objects(url) if _SCHEME.match(url) else _Directory(url)


def name_of(evidence: Evidence) -> str:
    """Unlike any other host's, and the same each time."""
    process = evidence.process
    when = evidence.time or (process.started if process is not None else None) or time.time()
    moment = dt.datetime.fromtimestamp(when, dt.timezone.utc)
    host = (process.host if process is not None else None) or os.uname().nodename
    parts = (
        moment.strftime("%Y-%m-%dT%H-%M-%S.%fZ"),
        re.sub(r"[^A-Za-z0-9.-]", "-", host)[:64] or "-",
        _boot(),
        process.pid if process is not None else 0,
        evidence.id,
    )
    return "_".join(map(str, parts)) + ".json"


def _boot() -> str:
    """Two containers may have one host name; two machines never have one boot."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(8)
    except OSError:
        return "00000000"


@dataclass(frozen=True, slots=True)
class _Directory:
    url: str

    def put(self, name: str, content: bytes) -> None:
        try:
            folder = self._folder(name)
            temporary = os.path.join(folder, f".new-{secrets.token_hex(8)}")
            try:
                _write(temporary, content)
                os.rename(temporary, os.path.join(folder, name))
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        except OSError as error:
            raise self._away(error) from error

    def _folder(self, name: str) -> str:
        """Of its day, open to whom the place is open. The place itself is never made: below an unmounted mount point
        that would look like success.
        """
        folder = os.path.join(self.url, _day(name))
        try:
            os.mkdir(folder)
        except FileExistsError:
            return folder
        with contextlib.suppress(OSError):
            os.chmod(folder, stat.S_IMODE(os.stat(self.url).st_mode))
        return folder

    def names(self) -> list[str]:
        try:
            days = sorted(filter(_DAY.fullmatch, os.listdir(self.url)), reverse=True)
        except OSError as error:
            raise self._away(error) from error
        return _newest(_listed(os.path.join(self.url, day)) for day in days)

    def read(self, names: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        for name in names:
            yield name, _content(os.path.join(self.url, _day(name), name))

    def _away(self, error: OSError) -> PlaceAway:
        if not isinstance(error, FileNotFoundError):
            return PlaceAway(error.strerror or str(error))
        return PlaceAway("there is no such directory", then=f"mount it, or mkdir -p {self.url}")


def _write(path: str, content: bytes) -> None:
    """Readable as the user's umask has it: whoever looks after a fleet is somebody else."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _content(path: str) -> bytes | None:
    """Of a plain file alone: a fifo in a shared directory would hold us for ever."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
            return None
        try:
            return file.read(LARGEST)
        except OSError:
            return None


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


@dataclass(slots=True, init=False)
class _Objects:
    """By fsspec, which is asked for only here. Its backends raise whatever their clients do."""

    url: str
    _system: Any
    _root: str

    def __init__(self, url: str) -> None:
        self.url = url
        scheme = url.partition("://")[0]
        try:
            core: Any = importlib.import_module("fsspec.core")
        except ImportError:
            raise PlaceAway(f"{scheme}:// needs fsspec", then="pip install fsspec") from None
        try:
            self._system, root = core.url_to_fs(url)
        except ImportError as error:
            raise PlaceAway(str(error), then="pip install what it names, beside lastwords") from None
        except Exception as error:
            raise _away(error) from error
        self._root = root.rstrip("/")

    def put(self, name: str, content: bytes) -> None:
        path = f"{self._root}/{_day(name)}/{name}"
        try:
            if self.url.partition("://")[0] in _STORED_WHOLE:
                self._system.pipe_file(path, content)
            else:
                self._put_by_renaming(path, content)
        except Exception as error:
            raise _away(error) from error

    def _put_by_renaming(self, path: str, content: bytes) -> None:
        folder = path.rpartition("/")[0]
        temporary = f"{folder}/.new-{secrets.token_hex(8)}"
        self._system.ls(self._root, detail=False)  # the place itself is never made
        self._system.makedirs(folder, exist_ok=True)
        self._system.pipe_file(temporary, content)
        self._system.mv(temporary, path)

    def names(self) -> list[str]:
        try:
            self._system.invalidate_cache()
            days = sorted(map(_last, self._listed(self._root)), reverse=True)
            return _newest(
                map(_last, self._listed(f"{self._root}/{day}")) for day in days if _DAY.fullmatch(day)
            )
        except FileNotFoundError as error:  # an object store knows no empty folders
            raise PlaceAway("no such place, or no death has come there yet") from error
        except Exception as error:
            raise _away(error) from error

    def _listed(self, path: str) -> list[str]:
        return [str(one["name"]) for one in self._system.ls(path, detail=True) if _is_small(one)]

    def read(self, names: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        for start in range(0, len(names), AT_ONCE):
            paths = {f"{self._root}/{_day(name)}/{name}": name for name in names[start : start + AT_ONCE]}
            try:
                found = self._system.cat(list(paths), on_error="return")
            except Exception as error:
                raise _away(error) from error
            for path, name in paths.items():
                content = found.get(path)
                yield name, content if isinstance(content, bytes) else None


def _is_small(entry: dict[str, Any]) -> bool:
    return entry.get("type") == "directory" or int(entry.get("size") or 0) <= LARGEST


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _away(error: Exception) -> PlaceAway:
    return PlaceAway(" ".join(f"{type(error).__name__}: {error}".split())[:300])


def _day(name: str) -> str:
    return name[:10]


def _newest(days: Iterable[Iterable[str]]) -> list[str]:
    found: list[str] = []
    for day in days:
        found += sorted(filter(NAME.fullmatch, day), reverse=True)
        if len(found) >= MOST_NAMES:
            break
    return found[:MOST_NAMES]
