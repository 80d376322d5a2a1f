"""A real Ray of two nodes that share no directory of ours: the driver on one hears of the deaths on the other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.ray.nodes import SECOND, Nodes
from tests.engines.victims import deaths

pytest.importorskip("ray")
pytestmark = [pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(900)]

JOB = Path(__file__).parent / "two_nodes.py"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    if lacks := deaths.missing("SIGSEGV"):
        pytest.skip(lacks)
    made = Nodes(tmp_path_factory.mktemp("nodes"))
    try:
        address = made.start()
        yield made, run(made, address)
    finally:
        made.stop()


def run(made: Nodes, address: str) -> dict[str, dict]:
    words = [sys.executable, str(JOB), address, str(made.place)]
    done = subprocess.run(
        words, env=made.environment("driver"), capture_output=True, text=True, timeout=600, check=False
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done.stderr
    return {one["name"]: one for one in lines}


@pytest.fixture
def said(nodes):
    return nodes[1]


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def place(nodes, said):
    """As a note names it: node, address, host."""
    assert said["place"]["host"] == nodes[0].host_of_second
    return f"node {said['place']['node']} · {SECOND} ({said['place']['host']})"


@pytest.mark.parametrize(
    ("case", "kind", "ending", "cause"),
    [
        ("worker", "WorkerCrashedError", "died of SIGSEGV on task work ", "null-pointer"),
        ("actor", "ActorDiedError", "ended with exit code 3 on task Actor.work", "worker-exit"),
    ],
)
def test_a_death_on_the_other_node_is_explained_with_its_node_and_host(
    said, place, case, kind, ending, cause
):
    assert said[case]["type"] == kind
    (note,) = said[case]["notes"]
    assert note.startswith("✗ Ray worker (pid ") and ending in flat(note) and cause in note, note
    assert place in flat(note), note


def test_it_is_kept_where_it_happened(nodes, said):
    kept = {
        name: list((nodes[0].place / name).glob("deaths/*/evidence.json")) for name in ("second", "driver")
    }
    assert len(kept["second"]) >= 2 and not kept["driver"]


def test_an_exception_names_node_and_host(said):
    (note,) = said["exception"]["notes"]
    assert note.startswith("lastwords: task work ")
    assert f" · node {said['place']['node'][:12]} · " in note and note.endswith(
        f"host {said['place']['host']}"
    )


def test_a_timeout_says_where_the_task_hangs(said, place):
    assert said["hang"]["type"] == "GetTimeoutError"
    (note,) = said["hang"]["notes"]
    assert note.startswith("✗ Ray worker (pid ") and "hangs on task work " in flat(note), note
    assert "time.sleep(1000)" in note and place in flat(note), note


@pytest.mark.parametrize(
    ("case", "kinds", "item"),
    [
        ("task of the node", ["NodeDiedError"], "task wait_for_the_end"),
        # Which one depends on how soon Ray itself knows of it.
        ("actor of the node", ["ActorUnavailableError", "ActorDiedError"], "task Actor.wait_for_the_end"),
    ],
)
def test_the_end_of_a_node_is_told_from_that_of_a_worker(said, place, case, kinds, item):
    assert said[case]["type"] in kinds, said[case]
    (note,) = said[case]["notes"]
    raylet = f"✗ the raylet of node {said['place']['node'][:12]} (pid {said['place']['raylet']}) was killed by SIGKILL"
    assert flat(note).startswith(raylet), note
    assert f"was on {item}" in flat(note) and place in flat(note), note
