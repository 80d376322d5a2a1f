"""What causes make of an item that was tried again alone: some need company or a past, others need neither.

`not tried` says nothing. Passing alone does not prove a race: the item may draw random numbers, or have met what an
earlier one left behind. Dying alone does not prove bad data either; it only shows that nobody else is needed.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Reason
from lastwords.causes.words import item_name, met_signal, was_sent
from lastwords.endings import PASSED, SAME
from lastwords.evidence.model import Evidence, TriedAlone

CRASHES = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGTRAP")


def outcome(evidence: Evidence) -> str | None:
    """None: nobody tried."""
    return evidence.tried_alone.outcome if evidence.tried_alone is not None else None


def is_crash(evidence: Evidence) -> bool:
    """It died of its own doing. Whom somebody else kills passes alone for no reason but that."""
    own_abort = met_signal(evidence) == "SIGABRT"
    return met_signal(evidence) in CRASHES and (own_abort or not was_sent(evidence))


def has_passed(evidence: Evidence) -> bool:
    return outcome(evidence) == PASSED


def passed(evidence: Evidence, name: str) -> Iterator[Reason]:
    """It crashed in company, and passed alone."""
    if has_passed(evidence) and is_crash(evidence):
        yield Reason(name, in_words(evidence) or "")


def passed_without(evidence: Evidence, name: str) -> Iterator[Reason]:
    """The same, with what was missing in the try: whatever had run before in its worker."""
    if has_passed(evidence) and is_crash(evidence) and _had_a_past(evidence):
        yield Reason(name, f"{_item(evidence)} passed in a fresh worker, where nothing had run before it")


def died_again(evidence: Evidence, name: str) -> Iterator[Reason]:
    """It died in the same way, with nothing before it; where that is known, with nothing beside it."""
    if outcome(evidence) == SAME:
        yield Reason(name, in_words(evidence) or "")


def in_words(evidence: Evidence) -> str | None:
    """`item 5 passed when it ran again alone in a fresh worker, with nothing beside it`"""
    found = evidence.tried_alone
    if found is None:
        return None
    if found.is_that_try:
        way = "in the same way" if found.outcome == SAME else "otherwise"
        return f"this was a try alone in a fresh worker{_beside(found)}; in company {_item(evidence)} had died {way}"
    often = f", {found.tries} times" if found.tries > 1 else ""
    return (
        f"{_item(evidence)} {found.outcome} when it ran again alone in a fresh worker{often}{_beside(found)}"
    )


def _beside(found: TriedAlone) -> str:
    if not found.others or found.others_then is None:
        return ""
    if found.others_then == 0:
        return ", with nothing at work beside it"
    many = "1 other" if found.others_then == 1 else f"{found.others_then} others"
    return f", with {many} at work beside it"


def _item(evidence: Evidence) -> str:
    return item_name(evidence.item) if evidence.item is not None else "its item"


def _had_a_past(evidence: Evidence) -> bool:
    """Unless it is known that it was the first item of its worker."""
    return evidence.progress is None or evidence.progress.done > 0
