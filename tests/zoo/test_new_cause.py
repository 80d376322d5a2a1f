"""`make new-cause`: what it makes is whole, keeps the rules of the house, and says nothing yet."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAME = "moon-phase"
TREE = ("src", "zoo", "tests/__init__.py", "tests/conftest.py", "tests/test_house.py", "crates", "tools")
FILES = ("pyproject.toml", "constraints.txt", "Cargo.toml", "Makefile")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "target", "node_modules")
LIST = """
import json
from lastwords.causes import all_causes, not_loaded
from lastwords.diagnosis import diagnose
from lastwords.evidence import Evidence, Status
killed = Evidence(status=Status(source="parent", signal="SIGSEGV"))
said = next(one for one in diagnose(killed).verdicts if one.id == "moon-phase")
print(json.dumps([[one.id for one in all_causes()], not_loaded(), said.confidence]))
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy in which something may be made."""
    copy = tmp_path_factory.mktemp("copy") / "lastwords"
    for name in (*TREE, *FILES):
        place = copy / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place, ignore=LEFT_OUT)
        else:
            shutil.copy(ROOT / name, place)
    subprocess.run(
        ["git", "init", "-q", copy], check=True
    )  # the rules hold for the files that git would take
    return copy


def ask(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {"PYTHONPATH": f"{tree / 'src'}:{tree}", "PATH": "/usr/bin:/bin", "HOME": str(tree)}
    words = (sys.executable, *words)
    return subprocess.run(words, cwd=tree, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def made(tree: Path) -> str:
    done = ask(tree, "tools/new_cause.py", NAME)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_makes_the_cause_its_animal_and_a_near_miss(tree: Path, made: str) -> None:
    files = [line.removeprefix("made ") for line in made.splitlines() if line.startswith("made ")]
    assert set(files) == {
        "src/lastwords/causes/moon_phase.py",
        f"zoo/{NAME}/death.py",
        f"zoo/{NAME}/expect.json",
        f"zoo/{NAME}-near-miss/death.py",
        f"zoo/{NAME}-near-miss/expect.json",
    }
    assert json.loads((tree / f"zoo/{NAME}/expect.json").read_text())["cause"] == NAME
    assert json.loads((tree / f"zoo/{NAME}-near-miss/expect.json").read_text())["cause"] != NAME
    steps = [line.strip() for line in made.partition("Next:")[2].splitlines() if line.strip()]
    assert steps[1].endswith(f".venv/bin/python -m zoo {NAME} --job plain")


@pytest.mark.usefixtures("made")
def test_the_cause_is_collected_and_claims_nothing_yet(tree: Path) -> None:
    done = ask(tree, "-c", LIST)
    assert done.returncode == 0, done.stderr
    ids, not_loaded, confidence = json.loads(done.stdout)
    assert NAME in ids and not_loaded == []
    assert confidence < 0.5


@pytest.mark.usefixtures("made")
def test_its_animals_are_in_the_zoo(tree: Path) -> None:
    done = ask(tree, "-m", "zoo")
    listed = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()}
    assert (listed[NAME], listed[f"{NAME}-near-miss"]) == (NAME, "unknown"), done.stderr


@pytest.mark.usefixtures("made")
def test_it_keeps_the_rules_of_the_house(tree: Path) -> None:
    done = ask(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_house.py")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    ("words", "said"),
    [((), "which one?"), (("Moon_Phase",), "lower case"), ((NAME,), "there is already")],
    ids=["no name", "a wrong name", "one that is there"],
)
def test_wrong_use_is_one_line(tree: Path, words: tuple[str, ...], said: str) -> None:
    done = ask(tree, "tools/new_cause.py", *words)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert said in done.stderr


def test_make_calls_it() -> None:
    if shutil.which("make") is None:
        pytest.skip("there is no make here")
    words = ["make", "-n", "-o", ".venv/stamps/native", "new-cause", f"NAME={NAME}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1].endswith(f'tools/new_cause.py "{NAME}"'), done.stderr
