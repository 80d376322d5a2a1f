"""Stacks and registers in the whole account."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from lastwords.evidence.model import Pointer
from lastwords.show.registers import pointed
from lastwords.show.stacks import merged_stack, native_stack, python_frames, stretches
from tests.cases import evidence_of

replace = msgspec.structs.replace


def test_rounds_are_shown_once():
    keys = ["leaf", *["walk", "visit"] * 10, "main"]
    assert list(stretches(keys)) == [(0, 1, 1), (1, 2, 10), (21, 1, 1)]


def test_nothing_is_counted_across_the_gap():
    assert list(stretches(["walk"] * 10, gap=6)) == [(0, 1, 6), (6, 1, 4)]


@given(st.lists(st.sampled_from("abc"), max_size=60), st.one_of(st.none(), st.integers(0, 60)))
def test_nothing_is_lost(keys: list[str], gap: int | None):
    whole = [keys[start : start + length] * times for start, length, times in stretches(keys, gap)]
    assert [key for part in whole for key in part] == keys


def test_an_overflowed_stack_fits_on_a_page():
    evidence = evidence_of("stack-overflow")
    lines = [line.text for line in native_stack(evidence)]
    assert any("this frame again" in line for line in lines)
    assert "… frames that were not saved …" in lines
    assert len(lines) < 20


def test_python_and_native_frames_are_one_stack():
    texts = [line.text for line in merged_stack(evidence_of("jump-into-data"))]
    at = next(place for place, text in enumerate(texts) if text.endswith("in die"))
    assert [text.split(" in ")[0] for text in texts[at - 2 : at]] == ["call", "jump_into_data"]
    assert not any("Eval" in text or "_start" in text for text in texts)


def test_repeated_python_frames_are_counted():
    stack = evidence_of("python-recursion").python_stack
    assert stack is not None
    lines = list(python_frames((stack.frames[0],) * 50))
    assert lines[-1].text == "… this frame again, 49 times"


def test_memory_of_a_stack_is_not_shown():
    secret = b"password=hunter2 and much more...".hex()
    evidence = evidence_of("null-dereference")
    on_stack = Pointer(source="test", register="rsp", value=1, bytes=secret, points_into="[stack]")
    on_heap = replace(on_stack, register="rax", points_into="[heap]", bytes=b"AAAAAAAA".hex(), freed="bin")
    texts = [line.text for line in pointed(replace(evidence, pointers=(on_stack, on_heap)))]
    assert texts[0] == "[stack]"
    assert "looks freed" in texts[1]
    assert texts[2] == "4141414141414141  'AAAAAAAA'"
    assert secret[:16] not in " ".join(texts)
