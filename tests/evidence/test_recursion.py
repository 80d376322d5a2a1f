"""Rounds on a stack: found, measured, and not seen where there are none."""

from __future__ import annotations

import struct
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastwords import _native
from lastwords.evidence import saved_stack
from lastwords.evidence.model import Fault, NativeFrame, NativeStack, PythonFrame, PythonStack, Recursion
from lastwords.evidence.recursion import recursion

LOW, HIGH = 0x7FFC_0000_0000, 0x7FFC_0080_0000


def frames(*names: str) -> tuple[NativeFrame, ...]:
    addresses = {name: 0x1000 + 16 * number for number, name in enumerate(dict.fromkeys(names))}
    return tuple(
        NativeFrame(address=addresses[name], function=name, library="/lib/a.so", trust="cfi")
        for name in names
    )


def stack(*names: str, gap: int | None = None, omitted: int | None = None) -> NativeStack:
    return NativeStack(
        source="test",
        frames=frames(*names),
        gap_before=gap,
        omitted=omitted,
        stopped_because="outermost frame",
    )


def found(
    native: NativeStack | None, size: int | None = None, python: PythonStack | None = None
) -> Recursion | None:
    fault = Fault(source="test", signal="SIGSEGV", code=1, sp=LOW, stack_low=LOW, stack_high=HIGH)
    return recursion(fault, native, python, lambda _: size)


def test_one_function_that_calls_itself():
    names = ["leaf", *["walk"] * 100]
    one = found(stack(*names, "main", gap=len(names)), size=64)
    assert one is not None
    assert (one.function, one.functions, one.seen) == ("walk", ("walk",), 100)
    assert (one.bytes_each, one.depth) == (64, (HIGH - LOW) // 64)


def test_functions_that_call_each_other():
    one = found(stack(*["visit", "descend", "dispatch"] * 40, gap=120), size=300)
    assert one is not None
    assert set(one.functions) == {"visit", "descend", "dispatch"}
    assert one.seen == 40


def test_the_interpreters_own_calls_are_no_name():
    one = found(stack(*["_PyEval_EvalFrameDefault", "_PyEval_Vector", "map_next", "builtin_next"] * 40))
    assert one is not None
    assert one.function == "map_next"


def test_where_every_frame_was_seen_they_are_counted():
    one = found(stack(*["walk"] * 90, gap=50, omitted=910))
    assert one is not None
    assert one.depth == 1000


def test_a_depth_that_cannot_be_known_is_not_invented():
    one = found(stack(*["walk"] * 90, gap=80))
    assert one is not None
    assert one.depth is None


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["main"],
        ["walk"] * 7,
        [f"f{number}" for number in range(100)],
        [name for number in range(30) for name in ("eval", *[f"f{number}_{each}" for each in range(9)])],
    ],
)
def test_a_deep_stack_is_not_a_recursion(names: list[str]):
    assert found(stack(*names) if names else None) is None


def test_the_python_function_of_the_rounds_is_found():
    frame = PythonFrame(file="/srv/job/tree.py", line=12, function="flatten")
    python = PythonStack(source="test", frames=(frame,) * 100)
    names = ["_PyEval_EvalFrameDefault", "map_next"] * 40
    one = found(stack(*names), python=python)
    assert one is not None
    assert one.python == frame
    native_only = found(stack(*["walk"] * 40), python=python)
    assert native_only is not None
    assert native_only.python is None


@given(st.lists(st.sampled_from("abcde"), max_size=200), st.one_of(st.none(), st.integers(0, 200)))
def test_no_stack_breaks_it(names: list[str], gap: int | None):
    one = found(stack(*names, gap=gap) if names else None)
    assert one is None or (one.function in names and set(one.functions) <= set(names) and one.seen >= 2)


class TestSavedStack:
    ADDRESS = 0x7F00_0000_1234

    def test_the_usual_distance(self):
        round_ = struct.pack("<Q", self.ADDRESS) + bytes(56)
        assert saved_stack.distance(bytes(16) + round_ * 20, self.ADDRESS) == 64

    def test_too_few_say_nothing(self):
        round_ = struct.pack("<Q", self.ADDRESS) + bytes(56)
        assert saved_stack.distance(round_ * 4, self.ADDRESS) is None
        assert saved_stack.distance(b"", self.ADDRESS) is None

    @given(st.binary(max_size=300))
    def test_a_damaged_dump_is_no_stack(self, content: bytes):
        for dump in (content, b"MDMP" + content, None):
            with mock.patch.object(_native, "minidump_box", return_value=dump):
                assert isinstance(saved_stack.read("/boxes/a.box", 0), bytes)
