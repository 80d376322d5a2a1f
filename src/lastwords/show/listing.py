"""Many deaths at a glance: one block for each signature, the newest first."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.text import Text

from lastwords.diagnosis import Diagnosis
from lastwords.show import text
from lastwords.show.clean import clean
from lastwords.show.quantities import utc
from lastwords.show.report import headline, percent

MOST_OF_A_KIND = 5
MOST_HOSTS = 4
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
    is_fleet = len({host_of(diagnosis) for diagnosis in diagnoses}) > 1
    for number, (signature, group) in enumerate(groups.items()):
        if number:
            yield Text()
        yield from _group(signature, group, width, is_fleet=is_fleet)


def host_of(diagnosis: Diagnosis) -> str:
    process = diagnosis.evidence.process
    return (process.host if process is not None else None) or "a host unknown"


def _group(signature: str, group: list[Diagnosis], width: int, *, is_fleet: bool) -> Iterator[Text]:
    times = f"{len(group)} times" if len(group) > 1 else "once"
    best = group[0].best
    sure = f", {percent(best.confidence)}" if best else ""
    count = f"({times}{sure})".replace(" ", NO_BREAK)
    yield from text.fold(f"{clean(signature)}  {count}", "strong", width, first="")
    for diagnosis in group[:MOST_OF_A_KIND]:
        evidence = diagnosis.evidence
        when = _when(evidence.time)
        host = f"{clean(host_of(diagnosis))}: " if is_fleet else ""
        yield from text.fold(
            f"{evidence.id}  {when}  {host}{clean(headline(evidence))}", "plain", width, rest=" " * 12
        )
    if is_fleet and len(group) > 1:
        yield Text(f"  {_hosts(group)}", style=text.STYLES["dim"])
    if len(group) > MOST_OF_A_KIND:
        yield Text(f"  … and {len(group) - MOST_OF_A_KIND} more", style=text.STYLES["dim"])


def _hosts(group: Sequence[Diagnosis]) -> str:
    """One bad host among many shows here: `all 3 on gpu-07`, `5 on gpu-07, 1 on gpu-02`"""
    counts = Counter(clean(host_of(diagnosis)) for diagnosis in group).most_common()
    if len(counts) == 1:
        return f"all {len(group)} on {counts[0][0]}"
    more = f", and {len(counts) - MOST_HOSTS} more hosts" if len(counts) > MOST_HOSTS else ""
    return ", ".join(f"{many} on {host}" for host, many in counts[:MOST_HOSTS]) + more


def _when(time: float | None) -> str:
    moment = utc(time)
    return f"{moment[:10]} {moment[11:19]}Z" if moment else "at a time unknown"
