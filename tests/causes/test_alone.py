"""What an item's try alone says for and against a cause, and what it does not say."""

from __future__ import annotations

import msgspec
import pytest

from lastwords.causes import alone
from lastwords.diagnosis import Verdict, diagnose
from lastwords.endings import OTHERWISE, PASSED, SAME
from lastwords.evidence import Evidence
from lastwords.evidence.model import Progress, PythonStack, TriedAlone
from tests.cases import diagnosis_of, evidence_of, names

replace = msgspec.structs.replace


def tried(
    name: str, outcome: str, *, others: int | None = 3, others_then: int | None = 2, **more
) -> Evidence:
    found = TriedAlone(source="test", outcome=outcome, tries=1, others=others, others_then=others_then)
    return replace(evidence_of(name), tried_alone=found, **more)


def verdict(evidence: Evidence, cause: str) -> Verdict:
    return next(one for one in diagnose(evidence).verdicts if one.id == cause)


def confidence(evidence: Evidence, cause: str) -> float:
    return verdict(evidence, cause).confidence


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("outcome", [PASSED, SAME, OTHERWISE])
def test_it_never_changes_the_first_cause_of_a_known_death(name: str, outcome: str):
    """What a death was is seen in the death itself; the try says who else had a part in it."""
    before, after = diagnosis_of(name).best, diagnose(tried(name, outcome)).best
    assert before is not None and after is not None
    assert before.id == after.id or before.confidence < 0.5


@pytest.mark.parametrize(
    ("name", "cause", "direction"),
    [
        ("thread-race", "data-race", 1),
        ("null-dereference", "shared-state", 1),
        ("double-free", "heap-corruption", 1),
        ("use-after-free", "use-after-free", 1),
        ("bit-flip", "hardware-fault", 1),
        ("memory-leak", "memory-leak", 1),
        ("null-dereference", "null-pointer", 0),
        ("killed-from-outside", "data-race", 0),
        ("killed-from-outside", "shared-state", 0),
        ("sent-segfault", "shared-state", 0),
        ("python-exception", "data-race", 0),
    ],
)
def test_passing_alone(name: str, cause: str, direction: int):
    change = confidence(tried(name, PASSED), cause) - confidence(evidence_of(name), cause)
    assert (change > 0) - (change < 0) == direction


@pytest.mark.parametrize(
    ("name", "cause", "direction"),
    [
        ("thread-race", "data-race", -1),
        ("filled-after-fork", "shared-state", 0),
        ("bit-flip", "hardware-fault", -1),
        ("memory-leak", "memory-leak", -1),
        ("null-dereference", "null-pointer", 1),
        ("wild-pointer", "wild-pointer", 1),
        ("illegal-instruction", "isa-mismatch", 1),
        ("python-exception", "python-exception", 1),
        ("double-free", "heap-corruption", 0),
    ],
)
def test_dying_alone(name: str, cause: str, direction: int):
    change = confidence(tried(name, SAME), cause) - confidence(evidence_of(name), cause)
    assert (change > 0) - (change < 0) == direction


def test_dying_alone_of_something_else_says_nothing():
    for one in diagnosis_of("thread-race").verdicts:
        assert confidence(tried("thread-race", OTHERWISE), one.id) == one.confidence


def test_company_is_needed_for_what_processes_share():
    nobody = confidence(tried("null-dereference", PASSED, others=0, others_then=0), "shared-state")
    busy = confidence(tried("null-dereference", PASSED, others=3, others_then=2), "shared-state")
    quiet = confidence(tried("null-dereference", PASSED, others=3, others_then=0), "shared-state")
    assert nobody == confidence(evidence_of("null-dereference"), "shared-state")
    assert nobody < busy < quiet < 0.5, "a hint, and no claim"


def test_shared_memory_under_a_register_makes_it_a_claim():
    found = verdict(evidence_of("dies-in-company"), "shared-state")
    assert found.confidence > 0.5
    assert found.facts["memory"] == "a shared mapping without a name"
    assert "multiprocessing.Lock" in found.steps[0].text
    assert confidence(evidence_of("dies-alone-too"), "shared-state") < 0.05


def test_a_past_is_needed_for_what_an_earlier_item_did():
    first = Progress(source="test", begun=1, done=0)
    without = confidence(tried("double-free", PASSED, progress=first), "heap-corruption")
    assert without == confidence(evidence_of("double-free", death=""), "heap-corruption")


def test_one_thread_has_no_race():
    alone_in_it = tried("null-dereference", PASSED, other_threads=())
    beside = tried("null-dereference", PASSED, other_threads=(PythonStack(source="test", frames=()),))
    assert confidence(alone_in_it, "data-race") < confidence(beside, "data-race") < 0.5


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        (
            TriedAlone(source="", outcome=PASSED, tries=1, others=3, others_then=1),
            "item 5 passed when it ran again alone in a fresh worker, with 1 other at work beside it",
        ),
        (
            TriedAlone(source="", outcome=SAME, tries=2, others=3, others_then=0),
            "item 5 died the same way when it ran again alone in a fresh worker, 2 times, with nothing at work beside it",
        ),
        (
            TriedAlone(source="", outcome=OTHERWISE, tries=1, others=0, others_then=0),
            "item 5 died otherwise when it ran again alone in a fresh worker",
        ),
        (
            TriedAlone(source="", outcome=SAME, tries=1, others=None, is_that_try=True),
            "this was a try alone in a fresh worker; in company item 5 had died in the same way",
        ),
        (None, None),
    ],
)
def test_words(fact: TriedAlone | None, words: str | None):
    assert alone.in_words(replace(evidence_of("null-dereference"), tried_alone=fact)) == words


def test_the_step_about_the_item_follows_what_is_known():
    def steps(evidence: Evidence) -> str:
        return " ".join(step.text for step in verdict(evidence, "null-pointer").steps)

    assert "run item 5 alone" in steps(evidence_of("null-dereference"))
    first = Progress(source="test", begun=1, done=0)
    passed = tried("null-dereference", PASSED)
    assert "look for a race with other workers or for what ran before it" in steps(passed)
    assert "a race with other workers" not in steps(tried("null-dereference", PASSED, others=0))
    assert "what ran before it" not in steps(replace(passed, progress=first))
    only = tried("null-dereference", PASSED, others=0, progress=first)
    assert "what differs from run to run" in steps(only)
    assert "look at item 5 itself" in steps(tried("null-dereference", SAME))
    assert "alone" not in steps(tried("null-dereference", OTHERWISE))
