"""The tour, for real: four jobs die, and what is shown of each is right."""

from __future__ import annotations

import io
import platform
from pathlib import Path

import pytest

from lastwords.commands import _tour
from lastwords.diagnosis import diagnose
from lastwords.evidence.store import Store

CAUSES = {
    "null_pointer": ("null-pointer", "SIGSEGV"),
    "missing_instruction": ("isa-mismatch", "SIGILL"),
    "killed": ("external-kill", "SIGKILL"),
    "exception": ("python-exception", None),
}


def acts() -> list[_tour.Act]:
    return [act for act in _tour.ACTS if act.machine in (None, platform.machine())]


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, bool]:
    home = tmp_path_factory.mktemp("tour")
    stream = io.StringIO()
    explained = _tour.play(stream, home)
    return stream.getvalue(), home, explained


def test_every_death_is_explained(tour: tuple[str, Path, bool]):
    shown, home, explained = tour
    assert explained, shown
    deaths = list(reversed(Store(home).all()))
    told = [(found.best.id if found.best else None) for found in map(diagnose, deaths)]
    assert told == [CAUSES[act.name][0] for act in acts()]
    assert [death.status.signal if death.status else None for death in deaths] == [
        CAUSES[act.name][1] for act in acts()
    ]
    assert {death.item.index for death in deaths if death.item} == {5}


def test_the_tour_shows_what_python_says_and_what_we_say(tour: tuple[str, Path, bool]):
    shown, home, _ = tour
    assert shown.count("Python says") == len(acts())
    assert shown.count("BrokenProcessPool") >= len(acts()) - 1
    assert f"lastwords --home {home} list" in shown
    assert "lastwords run -- python YOUR_JOB.py" in shown
    assert "\x1b" not in shown


def test_only_lines_to_be_copied_are_wider_than_80_columns(tour: tuple[str, Path, bool]):
    shown, _, _ = tour
    assert [line for line in shown.splitlines() if len(line) > 80 and "lastwords --home" not in line] == []


def test_the_victim_needs_the_standard_library_alone():
    source = Path(_tour.__file__).with_name("_victim.py").read_text()
    assert "lastwords" not in source.split('"""')[2]


def test_a_death_that_was_not_recorded_is_said_and_the_tour_goes_on(tmp_path: Path):
    job = tmp_path / "job.py"
    job.write_text("print('nothing happens')")
    scene = _tour.run(_tour.ACTS[0], job, tmp_path / "home")
    assert scene.diagnosis is None
    assert scene.python_said == "nothing"
