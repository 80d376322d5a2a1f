"""Many deaths at a glance: one block for each signature, the newest first."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.text import Text

from lastwords.diagnosis import Diagnosis
from lastwords.show import text
from lastwords.show.clean import clean
from lastwords.show.quantities import utc
from lastwords.show.report import headline, percent

MOST_OF_A_KIND = 5
NO_BREAK = "\u00a0"


def show(diagnoses: Sequence[Diagnosis], stream: TextIO | None = None) -> None:
    target = stream or sys.stdout
    text.put(target, render(diagnoses, width=text.width_of(target), colour=text.wants_colour(target)))


def render(diagnoses: Sequence[Diagnosis], *, width: int = text.WIDTH, colour: bool = False) -> str:
    return text.paint(_lay_out(diagnoses, width), colour=colour)


def _lay_out(diagnoses: Sequence[Diagnosis], width: int) -> Iterator[Text]:
    if not diagnoses:
        yield Text("Nothing has died here. Record a job with: lastwords run -- python YOUR_JOB.py")
        return
    groups: dict[str, list[Diagnosis]] = {}
    for diagnosis in diagnoses:
        groups.setdefault(diagnosis.signature, []).append(diagnosis)
    for number, (signature, group) in enumerate(groups.items()):
        if number:
            yield Text()
        yield from _group(signature, group, width)


def _group(signature: str, group: list[Diagnosis], width: int) -> Iterator[Text]:
    times = f"{len(group)} times" if len(group) > 1 else "once"
    best = group[0].best
    sure = f", {percent(best.confidence)}" if best else ""
    count = f"({times}{sure})".replace(" ", NO_BREAK)
    yield from text.fold(f"{clean(signature)}  {count}", "strong", width, first="")
    for diagnosis in group[:MOST_OF_A_KIND]:
        evidence = diagnosis.evidence
        when = _when(evidence.time)
        yield from text.fold(
            f"{evidence.id}  {when}  {clean(headline(evidence))}", "plain", width, rest=" " * 12
        )
    if len(group) > MOST_OF_A_KIND:
        yield Text(f"  … and {len(group) - MOST_OF_A_KIND} more", style=text.STYLES["dim"])


def _when(time: float | None) -> str:
    moment = utc(time)
    return f"{moment[:10]} {moment[11:19]}Z" if moment else "at a time unknown"
