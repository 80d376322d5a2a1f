"""What all targets are made from: the features that the libraries need, who needs them, and which hosts have them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lastwords.prevent import features
from lastwords.prevent.fleet import Host, chosen_when
from lastwords.prevent.scan_judge import TAKEN_FOR_GRANTED
from lastwords.prevent.scan_model import Library

MOST_NAMED = 6


@dataclass(frozen=True, slots=True)
class Need:
    architecture: str | None
    """None: no library has machine code, or they are not of one architecture."""
    features: tuple[str, ...]
    """The fewest that say it all, in /proc/cpuinfo's words."""
    reasons: tuple[str, ...]
    """A line for each feature: who needs it."""
    capable: tuple[Host, ...]
    incapable: tuple[tuple[Host, tuple[str, ...]], ...]
    """Hosts, and what each of them lacks."""

    @property
    def name(self) -> str:
        """One word for all of it, as resources are called: `avx2_fma`."""
        return "_".join(self.features)


def need_of(libraries: Sequence[Library], hosts: Sequence[Host] = ()) -> Need:
    architectures = {library.architecture for library in libraries if library.architecture}
    architecture = architectures.pop() if len(architectures) == 1 else None
    asked = [(library, asked_by(library, hosts)) for library in libraries]
    wanted = {feature for _, needs in asked for feature in needs}
    fewest = features.essential(wanted - features.baseline(architecture or ""))
    lacking = [(host, lacks(host, architecture, fewest)) for host in hosts]
    return Need(
        architecture=architecture,
        features=tuple(fewest),
        reasons=tuple(f"{feature}: {_who(feature, asked)}" for feature in fewest),
        capable=tuple(host for host, missing in lacking if not missing),
        incapable=tuple((host, missing) for host, missing in lacking if missing),
    )


def asked_by(library: Library, hosts: Sequence[Host]) -> frozenset[str]:
    """What a host must have for this library.

    One that its package loads only on some CPUs asks for less: not for what its package has asked for already, and not
    for AVX-512 of hosts that would get another build. What a CPU was found to lack counts in any case.
    """
    needs = frozenset(map(features.canonical, library.needs))
    found = frozenset(map(features.canonical, library.missing if library.verdict != "ok" else ()))
    when = chosen_when(library)
    if not when:
        return needs | found
    known = when.union(*(features.implied(feature) for feature in when))
    usual = ((needs - known) & features.level_features("x86-64-v3")) | _taken_for_granted(library, known)
    on_hosts = frozenset(
        feature
        for host in hosts
        if host.architecture == library.architecture
        for feature in host.lacks(library)
    )
    # It lacks what the package asks for: so it is not loaded there.
    return usual | on_hosts | (found if not found & when else frozenset())


def _taken_for_granted(library: Library, known: frozenset[str]) -> frozenset[str]:
    """The avx2 build of faiss: its loader asks for avx2, and its code uses fma as well."""
    return frozenset(
        feature
        for feature, asked in TAKEN_FOR_GRANTED.items()
        if asked in known and feature not in known and feature in library.dispatched
    )


def lacks(host: Host, architecture: str | None, wanted: Iterable[str]) -> tuple[str, ...]:
    if architecture is not None and host.architecture != architecture:
        return (architecture,)
    have = frozenset(map(features.canonical, host.features))
    return tuple(one for one in wanted if one not in have)


def _who(feature: str, asked: Sequence[tuple[Library, frozenset[str]]]) -> str:
    names = dict.fromkeys(
        f"{library.package} {library.version or ''}".strip() if library.package else library.path
        for library, needs in asked
        if feature in needs
    )
    shown = [one_line(name) for name in list(names)[:MOST_NAMED]]
    return ", ".join(shown) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")


def one_line(text: str) -> str:
    """Names come from files and become comments: none may end its comment and go on as a command."""
    return re.sub(r"[^\w .,:/@+=~-]", "?", text)[:120]


def comment(need: Need, sign: str = "#") -> list[str]:
    """What this is and why, at the head of every text."""
    lines = [f"{sign} made by lastwords scan: the CPU features that run without a guard in these libraries"]
    lines += [f"{sign}   {reason}" for reason in need.reasons] or [f"{sign}   none beyond the baseline"]
    if need.capable or need.incapable:
        total = len(need.capable) + len(need.incapable)
        lines.append(f"{sign} {len(need.capable)} of {total} known hosts can run them")
    lines += [
        f"{sign}   not {one_line(host.host)}: no {', no '.join(missing)}" for host, missing in need.incapable
    ]
    return lines


def nothing_needed(need: Need) -> bool:
    return not need.features


def text_of(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def host_name(host: Host) -> str:
    """For a command line; a host's file may say anything."""
    return re.sub(r"[^\w.-]", "_", host.host)
