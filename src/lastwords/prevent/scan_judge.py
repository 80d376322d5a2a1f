"""A library's needs against one CPU: ok, may crash, will crash, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from lastwords.evidence.packages import Package
from lastwords.prevent import dispatch, features
from lastwords.prevent.dispatch import Rule
from lastwords.prevent.scan_model import Library, Verdict
from lastwords.prevent.scan_report import Need, Report

LEVELS = ("x86-64-v1", "x86-64-v2", "x86-64-v3", "x86-64-v4")
# Seen in OpenBLAS and faiss: code that asks for the one and runs the other too.
TAKEN_FOR_GRANTED = {"fma": "avx2"}
LONGEST_NAME = 70


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A library that was read, before anybody asks for which CPU."""

    path: str
    report: Report
    package: Package | None = None
    rule: Rule | None = None


def subject(
    path: str, report: Report, package: Package | None, names_beside: Callable[[], frozenset[str]]
) -> Subject:
    rule = dispatch.rule_for(path, package.name if package else None, names_beside)
    return Subject(path=path, report=report, package=package, rule=rule)


def judge(
    found: Subject, cpu: frozenset[str], architecture: str, compute_capabilities: Sequence[str] = ()
) -> Library:
    report, rule = found.report, found.rule
    needs = _counted(report, rule)
    have = frozenset(map(features.canonical, cpu)) | features.baseline(architecture)
    verdict, missing, why = _verdict(report, needs, rule, have, architecture)
    if verdict == "ok" and (gpu := _gpu_problem(report.gpu, compute_capabilities)):
        verdict, why = "may-crash", gpu
    names = tuple(need.extension for need in needs)
    return Library(
        path=found.path,
        package=found.package.name if found.package else None,
        version=found.package.version if found.package else None,
        architecture=report.architecture,
        needs=names,
        dispatched=_dispatched(report, names),
        verdict=verdict,
        missing=missing,
        why=why,
        level=_level(names) if report.architecture == "x86_64" else None,
        gpu=report.gpu,
    )


def _counted(report: Report, rule: Rule | None) -> tuple[Need, ...]:
    """Of a file that is known to ask for itself, only what runs while it is loaded."""
    if rule is not None and rule.dispatches:
        return tuple(need for need in report.needs if need.is_certain)
    return report.needs


def _dispatched(report: Report, needs: tuple[str, ...]) -> tuple[str, ...]:
    left = [need.extension for need in report.needs if need.extension not in needs]
    return (*left, *report.dispatched)


def _verdict(
    report: Report, needs: tuple[Need, ...], rule: Rule | None, have: frozenset[str], architecture: str
) -> tuple[Verdict, tuple[str, ...], str]:
    if report.architecture != architecture:
        return "ok", (), f"for {report.architecture}: no {architecture} machine loads it"
    lacking = [need for need in needs if need.extension not in have]
    missing = tuple(need.extension for need in lacking)
    deadly = [need for need in lacking if need.because != "silent"]
    if not deadly:
        return _presumed(report, have) or ("ok", missing, _calm(report, needs, lacking))
    if rule is not None and rule.when and not set(rule.when) <= have:
        return "may-crash", missing, f"{rule.says}; here it would have to be forced. It {_because(deadly)}"
    certain = [need for need in deadly if need.is_certain]
    if rule is not None and rule.refuses:
        return "may-crash", missing, f"{rule.says}. It {_because(certain or deadly)}"
    return ("will-crash" if certain else "may-crash"), missing, _because(certain or deadly)


def _presumed(report: Report, have: frozenset[str]) -> tuple[Verdict, tuple[str, ...], str] | None:
    """Behind a guard that this CPU passes is something that it lacks."""
    passed = [one for one in report.presumes if one.extension not in have and have.issuperset(one.given)]
    if passed:
        first = passed[0]
        why = f"asks for {first.given[-1]} ({_short(first.guard)}) and then runs {first.extension} ({_short(first.function)})"
        return "may-crash", tuple(dict.fromkeys(one.extension for one in passed)), why
    for feature, asked in TAKEN_FOR_GRANTED.items():
        present = {*report.dispatched, *(need.extension for need in report.needs)}
        if feature not in have and asked in have and {feature, asked} <= present:
            why = f"has {feature} beside {asked} behind a guard, and this CPU has {asked} alone: many guards ask for {asked} only"
            return "may-crash", (feature,), why
    return None


def _calm(report: Report, needs: tuple[Need, ...], lacking: list[Need]) -> str:
    if report.note:
        return report.note
    if lacking:
        return f"{lacking[0].extension} is missing: lzcnt runs as bsr there and gives other numbers"
    if needs:
        return f"needs {', '.join(need.extension for need in needs)}"
    return "asks the CPU before it uses more than the baseline" if report.dispatched else "baseline code"


def _because(needs: list[Need]) -> str:
    worst = needs[0]
    same = ", ".join(need.extension for need in needs if need.because == worst.because)
    where = f" ({_short(worst.function)})" if worst.function else ""
    if worst.because == "baseline":
        return f"is compiled for {same}: {worst.functions:,} functions use {worst.extension}{where}"
    if worst.because == "load":
        start = f", from {_short(worst.from_)}" if worst.from_ else ""
        return f"runs {same} while it is loaded, before any guard{where}{start}"
    if worst.because == "note":
        return f"was linked for {same}: glibc's loader refuses it elsewhere"
    return f"runs {same} when it is called, with no guard in sight{where}"


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def _level(needs: tuple[str, ...]) -> str | None:
    wanted = set(needs)
    fitting = (level for level in LEVELS if wanted <= features.level_features(level))
    return next(fitting, None)


def _gpu_problem(built: tuple[str, ...], capabilities: Sequence[str]) -> str | None:
    """Machine code runs on GPUs of its generation from its own step on; PTX on all later ones."""
    for capability in capabilities if built else ():
        here = _step(capability.replace(".", ""))
        if not any(_runs(name, here) for name in built):
            return f"has no kernel for a GPU of compute capability {capability}: built for {', '.join(built)}"
    return None


def _runs(name: str, here: tuple[int, int]) -> bool:
    kind, _, digits = name.partition("_")
    step = _step(digits)
    return step <= here and (kind == "compute" or step[0] == here[0])


def _step(digits: str) -> tuple[int, int]:
    number = "".join(sign for sign in digits if sign.isdigit()) or "0"
    return int(number[:-1] or "0"), int(number[-1])
