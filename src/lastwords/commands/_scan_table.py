"""A scan on the terminal, worst first, and as JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from lastwords.prevent.cpus import Cpu
from lastwords.prevent.scan_model import Library
from lastwords.show import text
from lastwords.show.clean import clean

if TYPE_CHECKING:
    from lastwords.prevent.fleet import Host
    from lastwords.prevent.scan_judge import Subject

SIGNS = {"will-crash": ("✗", "bold red"), "may-crash": ("?", "yellow"), "ok": ("·", "dim")}
WORDS = {"will-crash": "will crash", "may-crash": "may crash", "ok": "fine"}


def as_json(libraries: Sequence[Library]) -> str:
    return msgspec.json.format(msgspec.json.encode(libraries), indent=2).decode() + "\n"


def show(libraries: Sequence[Library], cpu: Cpu, *, show_all: bool) -> None:
    lines = _lay_out(libraries, cpu, text.width_of(sys.stdout), show_all=show_all)
    text.put(sys.stdout, text.paint(lines, colour=text.wants_colour(sys.stdout)))


def _lay_out(libraries: Sequence[Library], cpu: Cpu, width: int, *, show_all: bool) -> Iterator[Text]:
    shown = [library for library in libraries if show_all or library.verdict != "ok"]
    for library in shown:
        yield from _library(library, width)
    if shown:
        yield Text()
    yield _sum(libraries, cpu)
    if any(library.verdict == "will-crash" for library in libraries):
        yield Text(
            "  keep jobs off such hosts:  lastwords scan --emit k8s   (or spark, ray, slurm)", style="dim"
        )


def _library(library: Library, width: int) -> Iterator[Text]:
    sign, style = SIGNS[library.verdict]
    owner = f"{library.package} {library.version or ''}".strip() if library.package else "no package"
    head = Text.assemble((f"{sign} {os.path.basename(library.path)}", style), (f"  {owner}", "bold"))
    if library.missing:
        head.append(f"  lacks {', '.join(library.missing)}")
    yield Text(clean(head.plain)) if clean(head.plain) != head.plain else head
    for line in _wrapped(clean(library.why), width - 4):
        yield Text(f"    {line}")
    yield Text(f"    {clean(library.path)}", style="dim")


def _wrapped(words: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(words, max(20, width)) or [""]


def _sum(libraries: Sequence[Library], cpu: Cpu) -> Text:
    if not libraries:
        return Text("No native library there.")
    counts = {verdict: sum(library.verdict == verdict for library in libraries) for verdict in SIGNS}
    parts = [f"{number} {WORDS[verdict]}" for verdict, number in counts.items() if number]
    return Text(f"{len(libraries)} libraries on {clean(cpu.name)}: {', '.join(parts)}", style="bold")


def show_fleet(found: Iterable[Subject], hosts: Sequence[Host]) -> None:
    text.put(sys.stdout, text.paint(_fleet(list(found), hosts), colour=text.wants_colour(sys.stdout)))


def _fleet(found: list[Subject], hosts: Sequence[Host]) -> Iterator[Text]:
    from lastwords.prevent.scan import verdicts

    dying: dict[str, list[str]] = {}
    for host in hosts:
        for library in verdicts(found, frozenset(host.features), host.architecture):
            if library.verdict == "will-crash":
                what = f"{host.host} (lacks {', '.join(library.missing)})"
                dying.setdefault(library.path, []).append(what)
    for path, where in sorted(dying.items(), key=lambda item: (-len(item[1]), item[0])):
        yield Text(
            f"✗ {clean(os.path.basename(path))} dies on {len(where)} of {len(hosts)} hosts", style="bold red"
        )
        yield Text(f"    {clean(', '.join(where))}")
    yield Text(
        f"{len(found)} libraries, {len(hosts)} hosts: {len(dying)} libraries do not run everywhere",
        style="bold",
    )
