"""The hosts that a job may land on: facts of this one, facts of others from files, and which library runs where."""

from __future__ import annotations

import glob
import json
import os
import platform
import re
import resource
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from lastwords.prevent import dispatch, features, gpus
from lastwords.prevent.gpus import Gpu
from lastwords.prevent.scan_model import Library
from lastwords.record import host as recorded
from lastwords.watch import cgroups
from lastwords.watch.proc import read_text

LARGEST_FILE = 16 << 20
MOST_HOSTS = 100_000
_SPACE = re.compile(r"\s+")


class UnreadableHosts(ValueError):
    """A file that should hold hosts' facts does not. `reason` is for the user."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of one host: part of the published JSON. None: not known."""

    schema: str = recorded.SCHEMA
    host: str
    time: int | None = None
    architecture: str = "x86_64"
    kernel: str | None = None
    system: str | None = None
    """Of /etc/os-release: `debian 12`."""
    libc: str | None = None
    cpu_model: str | None = None
    cpu_vendor: str | None = None
    cpu_family: int | None = None
    cpu_number: int | None = None
    """The model's number within its family."""
    cpu_stepping: int | None = None
    features: tuple[str, ...] = ()
    """As in /proc/cpuinfo: what the CPU has and the system lets programs use."""
    level: str | None = None
    cpus: int | None = None
    memory: int | None = None
    memory_limit: int | None = None
    """Of the control groups around whoever asked."""
    shared_memory: int | None = None
    open_files: int | None = None
    gpus: tuple[Gpu, ...] = ()

    def lacks(self, library: Library) -> tuple[str, ...]:
        """What the library needs unguarded and this host does not have; empty: it runs, or is not chosen here."""
        if library.architecture != self.architecture:
            return (library.architecture,)
        have = frozenset(map(features.canonical, self.features)) | features.baseline(self.architecture)
        if not chosen_when(library) <= have:
            return ()
        return tuple(sorted({features.canonical(one) for one in library.needs} - have))


def chosen_when(library: Library) -> frozenset[str]:
    """What the CPU must have for the library's package to load it at all; mostly nothing."""
    rule = dispatch.rule_for(library.path, library.package, lambda: _names_in(os.path.dirname(library.path)))
    return frozenset(map(features.canonical, rule.when)) if rule is not None else frozenset()


@lru_cache(maxsize=256)
def _names_in(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


def probe() -> Host:
    """This host, now."""
    found = msgspec.convert(recorded.facts(), Host)
    have = tuple(sorted(this_cpu()))
    return msgspec.structs.replace(
        found,
        features=have,
        level=features.level_of(have) if found.architecture == "x86_64" else None,
        system=_system(),
        libc=" ".join(part for part in platform.libc_ver() if part) or None,
        memory_limit=_memory_limit(),
        shared_memory=_size_of("/dev/shm"),  # noqa: S108  # asked for its size
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        gpus=gpus.present(),
    )


def this_cpu() -> frozenset[str]:
    """What programs may use here: CPUID under an emulator tells more truth than /proc/cpuinfo does."""
    from lastwords.prevent.require import usable_features

    return usable_features()


def _system() -> str | None:
    pairs = dict(
        line.partition("=")[::2] for line in read_text("/etc/os-release").splitlines() if "=" in line
    )
    words = (pairs.get(name, "").strip("\"'") for name in ("ID", "VERSION_ID"))
    return " ".join(word for word in words if word) or None


def _memory_limit() -> int | None:
    groups = cgroups.memory(cgroups.groups_of(os.getpid()))
    return min((group.limit for group in groups if group.limit is not None), default=None)


def _size_of(path: str) -> int | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_blocks * found.f_frsize


def to_json(host: Host) -> str:
    return msgspec.json.format(msgspec.json.encode(host), indent=2).decode() + "\n"


def load(paths: Iterable[str | os.PathLike[str]]) -> list[Host]:
    """Hosts by name. A path is a file of one or more probes, a directory of them, or a pattern.

    Of a host that comes more than once the newest counts. Raises UnreadableHosts.
    """
    hosts: dict[str, Host] = {}
    for path in _files(paths):
        for host in _read(path):
            known = hosts.get(host.host)
            if known is None or (host.time or 0) >= (known.time or 0):
                hosts[host.host] = host
            if len(hosts) > MOST_HOSTS:
                raise UnreadableHosts(path, f"more than {MOST_HOSTS} hosts")
    return [hosts[name] for name in sorted(hosts)]


def _files(paths: Iterable[str | os.PathLike[str]]) -> Iterator[str]:
    for given in (os.fspath(path) for path in paths):
        if os.path.isdir(given):
            found = sorted(glob.glob(os.path.join(glob.escape(given), "*.json")))
        elif os.path.lexists(given):
            found = [given]
        else:
            found = sorted(glob.glob(given))
        if not found:
            reason = "no *.json in it" if os.path.isdir(given) else "no such file"
            raise UnreadableHosts(
                given, f"{reason}; make one with `lastwords fleet probe > hosts/$(hostname).json`"
            )
        yield from found


def _read(path: str) -> list[Host]:
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise UnreadableHosts(path, error.strerror or "cannot be read") from None
    if len(data) > LARGEST_FILE:
        raise UnreadableHosts(path, "larger than 16 MB: that is no host's facts")
    try:
        return [_host(one) for one in _objects(data)]
    except (ValueError, RecursionError) as error:
        raise UnreadableHosts(path, f"not what `lastwords fleet probe` prints ({error})") from None


def _objects(data: bytes) -> list[Any]:
    """Objects and arrays of them, one behind the other: what a cluster shell makes of many probes."""
    text, at = data.decode("utf-8").lstrip(), 0
    found: list[Any] = []
    decoder = json.JSONDecoder()
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        found += value if isinstance(value, list) else [value]
        space = _SPACE.match(text, at)
        at = space.end() if space else at
    if not found:
        raise ValueError("empty")
    return found


def _host(found: Any) -> Host:
    host = msgspec.convert(found, Host)
    if not host.schema.startswith("lastwords-host/"):
        raise msgspec.ValidationError(f"schema {host.schema!r}")
    return host


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """One library against the fleet."""

    library: Library
    runs_on: tuple[str, ...]
    dies_on: tuple[tuple[str, tuple[str, ...]], ...]
    """Hosts, and what each of them lacks."""


def place(libraries: Iterable[Library], hosts: Sequence[Host]) -> list[Placement]:
    """Which library runs where."""
    return [_placed(library, hosts) for library in libraries]


def _placed(library: Library, hosts: Sequence[Host]) -> Placement:
    lacking = [(host.host, host.lacks(library)) for host in hosts]
    return Placement(
        library=library,
        runs_on=tuple(name for name, lacks in lacking if not lacks),
        dies_on=tuple((name, lacks) for name, lacks in lacking if lacks),
    )
