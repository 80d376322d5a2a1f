"""The tour: throw-away jobs that die for real under `lastwords run`, and what is said of them."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import msgspec
from rich.text import Text

from lastwords.diagnosis import diagnose
from lastwords.evidence.store import Store
from lastwords.show import text

if TYPE_CHECKING:
    from lastwords.diagnosis import Diagnosis

TIME_LIMIT = 60
OURS = "lastwords: "


@dataclass(frozen=True)
class Act:
    name: str
    """The function of `_victim.py` that dies."""
    title: str
    prose: str
    machine: str | None = None
    """Only there can it be made."""


ACTS = (
    Act("null_pointer", "a null pointer", "Item 5 makes native code follow a null pointer."),
    Act(
        "missing_instruction",
        "an instruction this CPU lacks",
        "Item 5 runs an instruction of another maker's CPUs, as a wheel built elsewhere may.",
        machine="x86_64",
    ),
    Act("killed", "killed from outside", "While a worker is busy with item 5, another process kills it."),
    Act("exception", "a Python exception", "Item 5 raises. Python tells the line, but not the item."),
)


@dataclass(frozen=True)
class Scene:
    """What came of an act."""

    python_said: str
    we_said: str
    diagnosis: Diagnosis | None


def play(stream: TextIO, home: Path | None = None) -> bool:
    """The whole tour; whether every death was explained. Without `home` nothing is left behind."""
    with tempfile.TemporaryDirectory(prefix="lastwords-demo-") as folder:
        job = Path(folder, "job.py")
        shutil.copyfile(Path(__file__).with_name("_victim.py"), job)
        acts = [act for act in ACTS if act.machine in (None, platform.machine())]
        say(stream, _opening(len(acts)))
        explained = [
            _play_act(stream, act, f"{at} of {len(acts)}", job, home) for at, act in enumerate(acts, 1)
        ]
    say(stream, _closing(home))
    return all(explained)


def _play_act(stream: TextIO, act: Act, number: str, job: Path, home: Path | None) -> bool:
    say(stream, _before(act, number))
    scene = run(act, job, home or job.parent / "home")
    say(stream, _after(scene))
    if scene.diagnosis is not None:
        text.show(scene.diagnosis, stream=stream)
    return scene.diagnosis is not None


def run(act: Act, job: Path, home: Path) -> Scene:
    """Lets one job die under the real `lastwords run`, and finds its death in the store again."""
    before = {evidence.id for evidence in Store(home).all()}
    lastwords = [sys.executable, "-m", "lastwords", "--home", str(home), "run", "--quiet", "--"]
    done = subprocess.run(
        [*lastwords, sys.executable, job.name, act.name],
        cwd=job.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TIME_LIMIT,
        check=False,
    )
    found = [evidence for evidence in Store(home).all() if evidence.id not in before]
    # Without an id a report offers no commands on a store that is about to be gone.
    kept = [msgspec.structs.replace(evidence, id="") for evidence in found]
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith(OURS)]
    theirs = [line for line in lines if not line.startswith(OURS)]
    # The last line of a traceback is all that a log mostly shows.
    python_said = theirs[-1] if theirs else "nothing"
    return Scene(python_said, " ".join(ours), diagnose(kept[0]) if kept else None)


def say(stream: TextIO, lines: Iterator[Text]) -> None:
    """Prose at the look's own width: it holds no line that is longer."""
    text.put(stream, text.paint(lines, colour=text.wants_colour(stream)))


def _opening(acts: int) -> Iterator[Text]:
    yield Text("lastwords: why did my Python worker die?", style="bold")
    yield Text()
    yield Text(f"{acts} small jobs will die now, for real. Each has 8 items in a pool of two workers,")
    yield Text("and item 5 is deadly. Nothing in the job knows of lastwords.")


def _before(act: Act, number: str) -> Iterator[Text]:
    title = f"── {number} · {act.title} "
    yield Text()
    yield Text(title + "─" * (text.WIDTH - len(title)), style="bold cyan")
    yield from text.fold(act.prose, "plain", text.WIDTH, first="")


def _after(scene: Scene) -> Iterator[Text]:
    yield Text()
    yield from text.fold(scene.python_said, "dim", text.WIDTH, first="Python says     ")
    if scene.diagnosis is None:
        yield from text.fold(
            scene.we_said or "lastwords: this one left nothing to explain", "warn", text.WIDTH, first=""
        )
        return
    yield Text("lastwords says", style="bold")
    yield Text()


def _closing(home: Path | None) -> Iterator[Text]:
    lines = {
        "lastwords run -- python YOUR_JOB.py": "your own job, unchanged",
        "lastwords list": "what has died here",
        "lastwords explain --exit-code 137": "all you have is an exit code",
    }
    if home is not None:
        lines = {f"lastwords --home {home} list": "the deaths of this tour", **lines}
    yield Text()
    yield Text("── yours to try " + "─" * (text.WIDTH - 16), style="bold cyan")
    for command, what in lines.items():
        line = Text("  ")
        line.append(f"{command:<40}", style=text.STYLES["command"])
        line.append(what, style="dim")
        yield line
