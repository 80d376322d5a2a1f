"""The script that fits the weights: what it must never do, and what must hold of what it wrote."""

from __future__ import annotations

from collections import Counter

import pytest

from lastwords.causes import all_causes
from lastwords.diagnosis import diagnose
from tests.corpus import Case
from tests.corpus.scoring import SURE
from tools import fit_weights
from tools.fit_weights import Row, bare_endings, fit, loss, stated

START = {"for": 2.0, "against": -2.0}


def rows(*found: tuple[tuple[str, ...], float]) -> Counter[Row]:
    return Counter(Row(names, -3.0, truth) for names, truth in found for _ in range(10))


def test_it_moves_towards_what_was_true_and_not_past_its_bounds():
    always = rows((("for",), 1.0))
    fitted = fit(START, always)
    assert START["for"] < fitted["for"] <= fit_weights.LARGEST
    assert loss(always, fitted) < loss(always, START)


def test_a_reason_keeps_its_sign_whatever_the_cases_say():
    fitted = fit(START, rows((("for",), 0.0), (("against",), 1.0)))
    assert fitted["for"] > 0 > fitted["against"]


def test_a_reason_that_no_case_has_stays_as_it_was_stated():
    assert fit(START, rows((("for",), 1.0)))["against"] == pytest.approx(START["against"])


def test_a_text_that_leaves_it_open_makes_nothing_true():
    cause = next(one for one in all_causes() if one.id == "out-of-memory")
    two = Case("a", "shell", ("out-of-memory", "external-kill"), decidable=False, log="")
    assert fit_weights._truth(cause, two) <= fit_weights.OPEN < SURE
    assert fit_weights._truth(cause, two._replace(decidable=True)) == 1


def test_every_weight_has_the_sign_that_was_stated():
    for now, by_hand in zip(all_causes(), stated(), strict=True):
        assert now.weights.keys() == by_hand.weights.keys()
        assert all(now.weights[name] * by_hand.weights[name] > 0 for name in now.weights), now.id


def test_a_signal_or_an_exit_code_alone_claims_no_more_than_was_stated():
    """SIGFPE is what it is; SIGILL, SIGSEGV, SIGKILL and exit codes have several reasons each."""
    for case, before in bare_endings():
        claimed = {one.id for one in diagnose(before.evidence).causes if one.confidence > SURE}
        assert claimed <= {one.id for one in before.causes if one.confidence > SURE}, case.name
