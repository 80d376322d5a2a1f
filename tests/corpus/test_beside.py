"""What people paste beside a death (`lscpu`, settings, a pod that is well) is not what it died of."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastwords.diagnosis import CLAIMED, Diagnosis, explain

TEXTS = dict(
    block.split("\n", 1) for block in (Path(__file__).parent / "beside.txt").read_text().split("=== ")[1:]
)


def claims(found: Diagnosis) -> set[str]:
    return {one.id for one in found.causes if one.confidence >= CLAIMED and one.id != "unknown"}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize(
    "death",
    [
        "",
        "Segmentation fault (core dumped)",
        "Killed",
        "RuntimeError: DataLoader worker (pid 7) exited unexpectedly",
    ],
)
def test_nothing_is_claimed_from_what_stands_beside(name: str, death: str):
    assert claims(explain(f"{TEXTS[name]}\n{death}\n")) == set()


@pytest.mark.parametrize("name", TEXTS)
def test_and_it_hides_no_true_cause(name: str):
    found = explain(f"{TEXTS[name]}\nMemory cgroup out of memory: Killed process 4711 (python3)\n")
    assert found.best is not None and found.best.id == "out-of-memory"
    assert claims(found) == {"out-of-memory"}
