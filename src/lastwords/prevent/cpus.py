"""What CPUs can do, in /proc/cpuinfo's words: this host's, and those that archspec knows by name."""

from __future__ import annotations

import difflib
import platform

import msgspec

from lastwords.prevent import features


class UnknownCpu(ValueError):
    """No CPU is called that. `near` are names that look like it."""

    def __init__(self, name: str, near: tuple[str, ...]) -> None:
        super().__init__(f"no CPU is called {name}")
        self.name = name
        self.near = near


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    architecture: str
    features: frozenset[str]


def this_host() -> Cpu:
    """From the CPU itself and what the kernel has switched on: an emulator shows the real host in /proc/cpuinfo."""
    from lastwords import _native
    from lastwords.evidence.cpu import this_host as from_proc

    told = from_proc()
    found = _native.cpu_features()
    flags = found if found is not None else told.flags if told else ()
    machine = platform.machine()
    return Cpu(
        name=(told.model if told else None) or "this CPU",
        architecture=machine,
        features=frozenset(flags) | features.baseline(machine),
    )


def named(name: str) -> Cpu:
    """`haswell`, `zen3`, `x86-64-v3`, `neoverse_n1`; `haswell,-fma` is one without fma. Raises UnknownCpu."""
    base, *changes = (part.strip() for part in name.split(","))
    found = _from_archspec(base)
    have = set(found.features)
    for change in changes:
        feature = features.canonical(change.lstrip("+-"))
        if change.startswith("-"):
            have.discard(feature)
        else:
            have.add(feature)
    return Cpu(name=name, architecture=found.architecture, features=frozenset(have))


def _from_archspec(name: str) -> Cpu:
    import archspec.cpu

    known = archspec.cpu.TARGETS
    key = name.lower().replace("-", "_").replace(" ", "")
    # archspec joins words (`sandybridge`), people and qemu write `SandyBridge` or `sandy-bridge`.
    target = known.get(key) or known.get(key.replace("_", ""))
    if target is None or target.family.name not in {"x86_64", "aarch64"}:
        near = difflib.get_close_matches(key, known, 3, 0.6)
        raise UnknownCpu(name, tuple(near))
    machine = target.family.name
    have = frozenset(map(features.canonical, target.features)) | features.baseline(machine)
    return Cpu(name=name, architecture=machine, features=have | _left_out(have))


def _left_out(have: frozenset[str]) -> frozenset[str]:
    """What archspec does not list because it comes with something else."""
    return frozenset(one for feature in have for one in features.implied(feature))
