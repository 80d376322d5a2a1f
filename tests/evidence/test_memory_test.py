"""The short memory test: good memory passes, bad memory does not, and time and room are bounded."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import msgspec

from lastwords.diagnosis import diagnose
from lastwords.evidence.memory_test import BLOCK, available, memory_test
from tests.cases import evidence_of


def ticking() -> Callable[[], float]:
    """A second for each look at it: on a busy machine a real one may be over before the first block."""
    ticks = count()
    return lambda: float(next(ticks))


def test_good_memory_passes():
    found = memory_test(seconds=20, most=2 * BLOCK, clock=ticking())
    assert (found.tested, found.errors, found.examples) == (2 * BLOCK, 0, ())
    assert found.passes >= 1


def test_a_bit_that_does_not_hold_is_found_and_named():
    def bad(block):
        content = bytearray(block[:])
        content[0x1234] ^= 0x10
        return bytes(content)

    found = memory_test(seconds=20, most=BLOCK, read=bad, clock=ticking())
    assert found.errors >= 1
    assert found.examples[0].startswith("block 0, byte 0x1234: wrote ")


def test_it_takes_no_more_room_and_time_than_it_was_given():
    found = memory_test(seconds=6, most=100 * BLOCK, clock=ticking())
    assert found.tested <= 6 * BLOCK
    assert found.seconds <= 30
    assert memory_test(seconds=0.01, most=0).tested == 0


def test_what_is_free_is_known(tmp_path):
    assert available() > 0
    assert available(str(tmp_path / "nothing")) == 0
    (tmp_path / "odd").write_text("MemAvailable: none\n")
    assert available(str(tmp_path / "odd")) == 0


def confidence(evidence):
    return next(one.confidence for one in diagnose(evidence).verdicts if one.id == "hardware-fault")


def test_an_error_is_proof_and_none_is_a_weak_word_against():
    flipped = evidence_of("bit-flip")
    good = memory_test(seconds=20, most=BLOCK, clock=ticking())
    bad = msgspec.structs.replace(good, errors=3, examples=("block 0",))
    before = confidence(flipped)
    assert 0.25 < before < 0.5
    assert 0.15 < confidence(msgspec.structs.replace(flipped, memory_test=good)) < before
    assert confidence(msgspec.structs.replace(flipped, memory_test=bad)) > 0.95
