"""Texts of real deaths are explained: the first cause right, or honestly left open."""

from __future__ import annotations

import time
from functools import partial

import pytest

from tests.corpus import SHARED, Case, noise, own, shared
from tests.corpus.scoring import explained, failures

GOAL = 0.95

needs_shared = pytest.mark.skipif(not SHARED.is_file(), reason="the public logs are not beside this checkout")


def decidable(cases: list[Case]) -> list[Case]:
    return [case for case in cases if case.decidable]


def left_open(cases: list[Case]) -> list[Case]:
    return [case for case in cases if not case.decidable]


def assert_score(cases: list[Case], wrong: list[str]) -> None:
    score = 1 - len(wrong) / len(cases)
    assert score >= GOAL, f"{score:.1%} of {len(cases)}:\n" + "\n".join(wrong)


@pytest.mark.parametrize("choose", [decidable, left_open])
def test_our_own_texts(choose):
    cases = choose(own())
    assert_score(cases, failures(cases))


@needs_shared
@pytest.mark.parametrize("choose", [decidable, left_open])
def test_the_shared_corpus(choose):
    cases = choose(shared())
    assert_score(cases, failures(cases))


@pytest.mark.parametrize("change", noise.CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("choose", [decidable, left_open])
@pytest.mark.parametrize("source", [own, pytest.param(shared, marks=needs_shared)])
def test_told_otherwise(source, choose, change):
    cases = choose(source())
    assert_score(cases, failures(cases, partial(change, seed=7)))


@pytest.mark.parametrize("choose", [decidable, left_open])
@pytest.mark.parametrize("source", [own, pytest.param(shared, marks=needs_shared)])
def test_behind_warnings_that_it_lived_with(source, choose):
    """Logs of healthy jobs have words of trouble, too: a library that is not there, a fork with threads, a setting."""
    cases = choose(source())
    assert_score(cases, failures(cases, partial(noise.warned, seed=7)))


@pytest.mark.parametrize("source", [own, pytest.param(shared, marks=needs_shared)])
def test_in_front_of_what_follows_a_death(source):
    """The step that is cancelled, the connection that is closed and the wrapper's exit code come after the cause."""
    cases = decidable(source())
    assert_score(cases, failures(cases, partial(noise.followed, seed=7)))


@pytest.mark.parametrize("line", noise.WARNINGS)
def test_a_healthy_log_claims_nothing(line: str):
    log = f"epoch 1 loss 0.3\n{line}\nepoch 2 loss 0.2\nepoch 3 loss 0.2\nepoch 4 loss 0.1\n"
    assert not explained(log).is_claimed


@pytest.mark.slow
@pytest.mark.parametrize("source", [own, pytest.param(shared, marks=needs_shared)])
def test_in_megabytes_of_noise(source):
    """The large log goes another way than the small one: through the sieve."""
    cases = decidable(source())[::8]
    assert_score(cases, failures(cases, partial(noise.drowned, seed=3)))


@needs_shared
def test_every_answer_names_its_line():
    for case in decidable(shared()):
        diagnosis = explained(case.log)
        assert diagnosis.best is not None
        assert diagnosis.notes == ()
        assert diagnosis.evidence.notes == ()
        assert all(mention.line <= case.log.count("\n") + 1 for mention in diagnosis.evidence.mentions or ())


@pytest.mark.parametrize("case", own(), ids=lambda case: case.name)
def test_a_text_takes_no_time(case: Case):
    begun = time.process_time()
    explained(case.log)
    assert time.process_time() - begun < 2
