from __future__ import annotations

import dataclasses
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastwords.causes import Cause, Reason, Term, all_causes, cause_named
from lastwords.diagnosis import confidence, diagnose, why_not
from lastwords.evidence import Evidence
from tests.cases import diagnosis_of, evidence_of, names


def broken(evidence: Evidence):
    raise ZeroDivisionError("on purpose")


def named(name: str) -> Cause:
    found = cause_named(name)
    assert found is not None
    return found


def test_confidence_is_the_logistic_of_the_sum():
    terms = [Term(name="a", weight=1.5, text=""), Term(name="b", weight=-0.5, text="")]
    assert confidence(-1.0, terms) == 0.5
    assert confidence(-3.0, ()) == pytest.approx(1 / (1 + math.exp(3)))


@given(st.lists(st.floats(-1e6, 1e6)))
def test_confidence_is_always_a_probability(weights: list[float]):
    terms = [Term(name="x", weight=weight, text="") for weight in weights]
    assert 0.0 < confidence(0.0, terms) <= 1.0


def test_causes_are_ranked():
    for name in names():
        found = [verdict.confidence for verdict in diagnosis_of(name).verdicts]
        assert found == sorted(found, reverse=True)


def test_it_is_pure():
    assert diagnosis_of("null-dereference") == diagnosis_of("null-dereference")


@pytest.mark.parametrize("part", ["judge", "sentence", "facts", "remedy"])
def test_a_cause_that_fails_is_a_note_and_the_rest_go_on(part: str):
    change: dict[str, Any] = {part: broken}
    failing = dataclasses.replace(named("null-pointer"), **change)
    others = [cause for cause in all_causes() if cause.id != "null-pointer"]
    diagnosis = diagnose(evidence_of("null-dereference"), [failing, *others])
    assert diagnosis.notes == ("null-pointer: ZeroDivisionError: on purpose",)
    assert {verdict.id for verdict in diagnosis.verdicts} == {cause.id for cause in others}
    assert diagnosis.best is not None
    assert diagnosis.best.id == "native-bug"


def test_a_reason_without_a_weight_is_a_note_too():
    odd = dataclasses.replace(named("unknown"), judge=lambda _evidence: [Reason("no_such_name", "…")])
    diagnosis = diagnose(Evidence(), [odd])
    assert diagnosis.best is None
    assert "no_such_name" in diagnosis.notes[0]


def test_all_causes_failing_still_gives_a_diagnosis():
    diagnosis = diagnose(Evidence(), [dataclasses.replace(cause, judge=broken) for cause in all_causes()])
    assert diagnosis.verdicts == ()
    assert not diagnosis.is_claimed
    assert len(diagnosis.notes) == len(all_causes())


def test_the_code_in_memory_must_be_that_of_the_file():
    evidence = evidence_of("null-dereference")
    assert evidence.instruction is not None
    patched = msgspec.structs.replace(evidence.instruction, matches_file=False)
    diagnosis = diagnose(msgspec.structs.replace(evidence, instruction=patched))
    assert any("not the code in the file" in text for text in diagnosis.contradictions)


class TestWhyNot:
    def test_it_answers_from_the_terms_that_decided(self):
        answer = why_not(diagnosis_of("null-dereference"), "external-kill")
        assert answer is not None
        assert not answer.is_best
        assert answer.terms[0].name == "no_kill"
        assert "SIGSEGV" in answer.terms[0].text

    def test_what_was_not_collected_is_said(self):
        answer = why_not(diagnosis_of("exit-code-alone"), "python-exception")
        assert answer is not None
        assert answer.not_collected == ("exception",)

    def test_it_may_be_that_cause_after_all(self):
        answer = why_not(diagnosis_of("null-dereference"), "null-pointer")
        assert answer is not None
        assert answer.is_best
        assert answer.is_claimed

    def test_no_such_cause(self):
        assert why_not(diagnosis_of("abort"), "bad-luck") is None
