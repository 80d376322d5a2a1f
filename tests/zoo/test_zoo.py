"""Every animal in every job: what is said is right, and the job ends as it does without us."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from zoo import keeper

DEADLY_ITEM = 5
HEAVY = ("torch", "faiss")


def marks(death: str, job: str) -> list[pytest.MarkDecorator]:
    wants_much = set(HEAVY) & set(keeper.expected(death).get("needs", ()))
    heavy = [pytest.mark.heavy] if job == "dataloader" or wants_much else []
    place = keeper.expected(death).get("place")
    takes_long = "through" in keeper.expected(death) or place in ("little-memory", "little-cpu")
    return [*heavy, pytest.mark.slow] if takes_long else heavy


CASES = [
    pytest.param(death, job, marks=marks(death, job), id=f"{death}-{job}")
    for death in keeper.animals()
    for job in keeper.jobs(death)
]


def one_of(value: Any, expected: Any) -> bool:
    return value in expected if isinstance(expected, list) else value == expected


@pytest.mark.parametrize(("death", "job"), CASES)
def test_an_animal_is_explained(death: str, job: str, tmp_path: Path):
    if lack := keeper.missing(death):
        pytest.skip(lack)
    outcome = keeper.run(death, job, tmp_path)
    expected = keeper.expected(death)
    told = outcome.deaths[-1]  # the first one
    assert len(outcome.deaths) == expected.get("deaths", 1)
    first = told["causes"][0]
    assert first["id"] == expected["cause"], first
    assert first["confidence"] > 0.5
    assert first["fix"]
    also = set(expected.get("also", ()))
    assert {one["id"] for one in told["causes"][1:] if one["confidence"] >= 0.5} <= also
    assert {one["id"] for one in told["causes"]} >= also
    assert told["death"]["signal"] == expected.get("signal")
    assert (told["tried_alone"] or {}).get("outcome") == expected.get("tried_alone")
    for name, value in expected["facts"].items():
        assert one_of(first["facts"][name], value), (name, first["facts"])
    check_native_stack(told, expected)
    check_place(told, expected.get("python", "die"), job, outcome.stderr)
    check_ending(death, job, outcome, tmp_path / "alone")


def check_native_stack(told: dict[str, Any], expected: dict[str, Any]) -> None:
    if "function" not in expected:
        return
    functions = [frame["function"] for frame in told["native_stack"]]
    wanted = expected["function"] if isinstance(expected["function"], list) else [expected["function"]]
    (found,) = [name for name in wanted if name in functions]
    at = functions.index(found)
    assert functions[at + 1 : at + 1 + len(expected["callers"])] == expected["callers"]


def check_place(told: dict[str, Any], python: str, job: str, panel: str) -> None:
    """The line of the death's own code (a kill leaves only the function it was called in), and the item."""
    frames = told["python_stack"] or ()
    if python == "elsewhere":  # the thread that died ran no Python; the one that waits for it does
        python, frames = "die", [frame for one in told["threads"] for frame in one["python_stack"]]
    functions = {frame["function"] for frame in frames}
    is_lost = python == "lost" or told["death"]["signal"] == "SIGKILL"
    assert functions & ({"die", "work", "__getitem__", python} if is_lost else {python}) or (
        job in ("plain", "own") and is_lost
    )
    if job in ("plain", "own"):
        return
    assert all(frame["file"] and frame["line"] for frame in frames)
    is_pythons_own = all("/lib/python" in frame["file"] for frame in frames)
    assert (" at  " if is_pythons_own else "your code") in panel and ".py:" in panel
    assert told["death"]["item"]["index"] == DEADLY_ITEM
    assert f"item {DEADLY_ITEM}" in panel or f"work({DEADLY_ITEM})" in panel


def check_ending(death: str, job: str, outcome: keeper.Outcome, home: Path) -> None:
    if "--kill-hung" in keeper.options(death):
        return  # alone, it would hang to this day
    alone = keeper.run_alone(death, job, home)
    assert outcome.returncode == alone.returncode
    assert outcome.stdout == alone.stdout
    if death == "python-exception":  # the others' tracebacks are races that differ from run to run
        assert without_numbers(alone.stderr) in without_numbers(outcome.stderr)


def without_numbers(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|\d+", "#", text)


@pytest.mark.parametrize("job", ["pool", pytest.param("dataloader", marks=pytest.mark.heavy)])
def test_a_healthy_job_gives_no_word(job: str, tmp_path: Path):
    healthy = tmp_path / "death.py"
    healthy.write_text("def die(item):\n    pass\n")
    words = [*keeper.LASTWORDS, "run", "--", *keeper.command("abort", job)[:-1], str(healthy)]
    done = keeper.start(words, keeper.environment(tmp_path / "home"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "sum 10416\n", "")
    assert list((tmp_path / "home").rglob("*.box")) == []
