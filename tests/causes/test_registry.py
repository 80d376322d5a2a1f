"""What must hold for every cause, so that adding one needs no more than its file and its animals."""

from __future__ import annotations

import inspect
import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from lastwords import causes
from lastwords.causes import Cause, all_causes, cause_named, not_loaded, words
from lastwords.commands._group import group
from lastwords.diagnosis import CLAIMED, LISTED, diagnose, explain
from lastwords.evidence import Evidence
from tests.cases import diagnosis_of, evidence_of, names
from tests.corpus import of_file

ROOT = Path(__file__).resolve().parents[2]

# The ids that the design promises; a cause may have another one only if it is listed below it.
PROMISED = {
    "isa-mismatch",
    "wrong-architecture",
    "trap-instruction",
    "corrupted-control-flow",
    "null-pointer",
    "wild-pointer",
    "use-after-free",
    "write-to-readonly",
    "stack-overflow",
    "stack-smashing",
    "heap-corruption",
    "arithmetic-fault",
    "native-abort",
    "fatal-python-error",
    "native-bug",
    "hardware-fault",
    "library-conflict",
    "missing-dependency",
    "version-mismatch",
    "out-of-memory",
    "memory-leak",
    "shared-memory-full",
    "file-truncated",
    "disk-full",
    "too-many-open-files",
    "thread-limit",
    "seccomp",
    "external-kill",
    "time-limit",
    "preemption",
    "cpu-starvation",
    "io-stall",
    "parent-died",
    "worker-exit",
    "python-exception",
    "unpicklable",
    "missing-main-guard",
    "hang",
    "fork-deadlock",
    "collective-timeout",
    "network-failure",
    "data-race",
    "shared-state",
    "cuda-in-fork",
    "cuda-illegal-access",
    "cuda-assert",
    "gpu-out-of-memory",
    "gpu-architecture",
    "unknown",
}
OUR_OWN: set[str] = set()

every_cause = pytest.mark.parametrize("cause", all_causes(), ids=lambda cause: cause.id)


def kept(which: str) -> list[tuple[Cause, str]]:
    """Animals whose evidence is kept in tests/cases; tests/zoo lets all of them die for real."""
    pairs = [(cause, name) for cause in all_causes() for name in getattr(cause, which)]
    return [(cause, name) for cause, name in pairs if name in names()]


def expected(name: str) -> dict[str, Any]:
    file = ROOT / "zoo" / name / "expect.json"
    return json.loads(file.read_text()) if file.is_file() else {}


def short(value: Cause | str) -> str:
    """The whole cause as an id has addresses in it, which differ from process to process."""
    return value.id if isinstance(value, Cause) else value


def test_the_causes_of_this_release_are_collected():
    assert {cause.id for cause in all_causes()} >= {
        "external-kill",
        "isa-mismatch",
        "native-bug",
        "null-pointer",
        "python-exception",
        "trap-instruction",
        "unknown",
        "wild-pointer",
        "worker-exit",
    }


def test_ids_are_unique():
    ids = [cause.id for cause in all_causes()]
    assert len(set(ids)) == len(ids)


def test_a_cause_is_found_by_its_id():
    assert cause_named("null-pointer") is not None
    assert cause_named("no-such-cause") is None


@every_cause
def test_id_is_the_file_name_and_promised(cause: Cause):
    module = import_module(f"{causes.__name__}.{cause.id.replace('-', '_')}")
    assert module.CAUSE is cause
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", cause.id)
    assert cause.id in PROMISED | OUR_OWN


@every_cause
def test_docs_are_the_module_docstring(cause: Cause):
    title, *rest = cause.doc.strip().splitlines()
    assert title.endswith(".")
    assert len(" ".join(rest).split()) >= 20, (
        "say how it comes about, and how it is told from what looks alike"
    )
    assert cause.title.strip(".") == cause.title
    assert "TODO" not in cause.doc + cause.title


@every_cause
def test_needs_are_fields_of_the_evidence(cause: Cause):
    assert set(cause.needs) <= {field.name for field in msgspec.structs.fields(Evidence)}


@every_cause
def test_every_weight_is_used_and_none_is_zero(cause: Cause):
    source = inspect.getsource(import_module(cause.judge.__module__)) + inspect.getsource(words)
    for name, weight in cause.weights.items():
        assert weight != 0
        assert f'"{name}"' in source or name in causes.SAID_ELSEWHERE


@every_cause
def test_nothing_known_is_never_a_claim(cause: Cause):
    nothing = Evidence()
    verdict = next(one for one in diagnose(nothing).verdicts if one.id == cause.id)
    assert verdict.confidence < CLAIMED


@every_cause
def test_it_has_animals(cause: Cause):
    """The last resort has none: it is what is said when nobody left anything behind."""
    assert cause.zoo or cause.id == "unknown"
    assert cause.near_misses
    for name in (*cause.zoo, *cause.near_misses):
        assert (ROOT / "zoo" / name / "expect.json").is_file() or name in names() or texts(name)


def texts(name: str) -> list[str]:
    """`text:some-cause` names the texts of tests/corpus that have this cause."""
    kind, _, stem = name.partition(":")
    return [case.log for case in of_file(stem)] if kind == "text" and stem else []


@every_cause
def test_it_explains_its_texts(cause: Cause):
    for log in (log for name in cause.zoo for log in texts(name)):
        best = explain(log).best
        assert best is not None
        assert best.reasons_for
        assert best.steps, "a cause without a fix helps nobody"
        assert best.sentence.endswith((".", "!"))


@every_cause
def test_it_does_not_claim_texts_that_look_alike(cause: Cause):
    for name in cause.near_misses:
        for log in texts(name):
            best = explain(log).best
            assert best is not None
            assert best.id != cause.id, log


@pytest.mark.parametrize(("cause", "name"), kept("zoo"), ids=short)
def test_it_explains_its_animals(cause: Cause, name: str):
    """As the first cause; where the animal has two that are true, as one of the listed ones."""
    diagnosis = diagnosis_of(name)
    if cause.id in expected(name).get("also", ()):
        assert cause.id in {one.id for one in diagnosis.causes}
        return
    best = diagnosis.best
    assert best is not None
    assert best.id == cause.id
    assert best.confidence >= CLAIMED
    assert best.reasons_for
    assert best.steps, "a cause without a fix helps nobody"
    assert best.sentence.endswith((".", "!")) or cause.id == "python-exception"


@pytest.mark.parametrize(("cause", "name"), kept("near_misses"), ids=short)
def test_it_does_not_claim_its_near_misses(cause: Cause, name: str):
    verdict = next(one for one in diagnosis_of(name).verdicts if one.id == cause.id)
    assert verdict.confidence < CLAIMED


@pytest.mark.parametrize("name", names())
def test_no_cause_fails_on_any_case(name: str):
    diagnosis = diagnosis_of(name)
    assert diagnosis.notes == ()
    assert len(diagnosis.verdicts) == len(all_causes())


@pytest.mark.parametrize("name", names())
def test_commands_in_steps_exist(name: str):
    """A step that tells of a command we do not have is worse than none."""
    ours = set(group.list_commands(click.Context(group)))
    for verdict in diagnosis_of(name).verdicts:
        for step in verdict.steps:
            text = f"{step.text} {step.command or ''}"
            assert set(re.findall(r"\blastwords ([a-z]+)\b", text)) <= ours


def test_a_death_that_is_not_kept_is_not_offered_for_show():
    steps = [step for one in diagnose(evidence_of("abort", death="")).verdicts for step in one.steps]
    assert not [step for step in steps if "lastwords show" in (step.command or "")]


def test_listed_is_below_claimed():
    assert 0 < LISTED < CLAIMED


def test_every_file_loads():
    assert not_loaded() == ()


def test_a_broken_file_is_a_note_and_the_others_stay(tmp_path, monkeypatch):
    (tmp_path / "broken_cause.py").write_text("raise RuntimeError('half written')")
    monkeypatch.setattr(causes, "__path__", [*causes.__path__, str(tmp_path)])
    causes._collected.cache_clear()
    try:
        assert not_loaded() == ("broken_cause: RuntimeError: half written",)
        assert len(all_causes()) > 10
        assert "half written" in " ".join(diagnose(evidence_of("null-dereference")).notes)
    finally:
        causes._collected.cache_clear()
