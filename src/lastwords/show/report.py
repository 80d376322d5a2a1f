"""The report on one death, as lines and words, before any renderer gives it a look.

Everything a victim wrote passes through `clean` on its way in: no renderer has to think of control characters.
"""

from __future__ import annotations

import msgspec

from lastwords.causes import SAID_ELSEWHERE, Step
from lastwords.causes.words import item_name
from lastwords.diagnosis import Diagnosis, Verdict
from lastwords.evidence.model import Evidence, Process
from lastwords.show import context, sections
from lastwords.show.clean import clean
from lastwords.show.lines import Line, Section, line


class Report(msgspec.Struct, frozen=True, kw_only=True):
    headline: str
    verdict: str
    """`isa-mismatch 99 %`"""
    sentence: str
    proof: tuple[Line, ...]
    doubts: tuple[Line, ...]
    """What speaks against it, and what contradicts."""
    steps: tuple[Step, ...]
    context: tuple[Line, ...]
    more: tuple[Line, ...]
    sections: tuple[Section, ...] = ()
    """The whole account, for `lastwords show`."""


def report(diagnosis: Diagnosis, *, full: bool = False, program: str = "lastwords") -> Report:
    """`program` is how a reader has to call us: with `--home` where this death is not in the usual place."""
    evidence, best = diagnosis.evidence, diagnosis.best
    return Report(
        headline=clean(headline(evidence)),
        verdict=f"{best.id} {percent(best.confidence)}" if best else "unknown",
        sentence=clean(best.sentence) if best else "No cause could be judged.",
        proof=tuple(_proof(evidence, best)),
        doubts=tuple(_doubts(diagnosis, best)),
        steps=tuple(_step(step, program) for step in best.steps) if best else (),
        context=tuple(context.context(diagnosis)),
        more=() if full or not evidence.id else (line(f"more: {program} show {evidence.id}", tone="dim"),),
        sections=tuple(sections.sections(diagnosis)) if full else (),
    )


def percent(confidence: float) -> str:
    """Never 100 and never 0: nothing here is that certain."""
    return f"{min(99, max(1, round(confidence * 100)))} %"


def headline(evidence: Evidence) -> str:
    if evidence.hang is not None:
        return f"{subject(evidence.process)} hangs{_on_item(evidence)}"
    if evidence.status is None and evidence.fault is None:
        return f"{subject(evidence.process)} ended{_on_item(evidence)}; nobody saw how"
    return f"{subject(evidence.process)} {_ending(evidence)}{_on_item(evidence)}"


def subject(process: Process | None) -> str:
    if process is None:
        return "a process"
    if process.worker is not None:
        name = f"worker {process.worker}"
    elif process.rank is not None:
        name = f"rank {process.rank}"
    else:
        name = process.role or {True: "a worker", False: "the job", None: "a process"}[process.is_child]
    return f"{name} (pid {process.pid})"


def _ending(evidence: Evidence) -> str:
    status, found = evidence.status, evidence.exception
    signal = status.signal if status else evidence.fault.signal if evidence.fault else None
    if signal in ("SIGKILL", "SIGTERM"):
        return f"was killed by {signal}"
    if signal:
        return f"died of {signal}"
    if found is not None and found.fatal:
        return f"died of {found.kind.rpartition('.')[2]}"
    return f"ended with exit code {status.exit_code}" if status else "ended"


def _on_item(evidence: Evidence) -> str:
    return f" on {item_name(evidence.item)}" if evidence.item else ""


def _proof(evidence: Evidence, best: Verdict | None) -> list[Line]:
    terms = best.terms if best else ()
    texts = [term.text for term in terms if term.weight > 0 and term.name not in SAID_ELSEWHERE]
    reasons = [line(text) for text in dict.fromkeys(texts)]  # one line of a log may be two reasons
    place = context.native_place(evidence)
    return [*reasons[:1], *([place] if place else []), *reasons[1:]]


def _doubts(diagnosis: Diagnosis, best: Verdict | None) -> list[Line]:
    against = [line(reason, label="but", tone="warn") for reason in best.reasons_against] if best else []
    return [*against, *(line(text, label="contradiction", tone="warn") for text in diagnosis.contradictions)]


def _step(step: Step, program: str) -> Step:
    command = clean(step.command) if step.command else None
    if command is not None and command.startswith("lastwords "):
        command = f"{program} {command.removeprefix('lastwords ')}"
    return Step(text=clean(step.text), command=command)
