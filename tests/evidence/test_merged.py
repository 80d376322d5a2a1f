"""Python frames in the place of the interpreter's own."""

from __future__ import annotations

from lastwords.evidence import Evidence
from lastwords.evidence.merged import EVALUATION, Merged, merged
from lastwords.evidence.model import NativeFrame, NativeStack, PythonFrame, PythonStack
from tests.cases import evidence_of


def evidence(native: list[str], python: list[str], gap: int | None = None, exact: bool = True) -> Evidence:
    frames = tuple(
        NativeFrame(address=number, function=name, library="/lib/a.so") for number, name in enumerate(native)
    )
    named = tuple(PythonFrame(file="/srv/job.py", line=1, function=name) for name in python)
    return Evidence(
        native_stack=NativeStack(source="test", frames=frames, gap_before=gap),
        python_stack=PythonStack(source="test", frames=named, is_exact=exact),
    )


def shown(found: Merged | None) -> list[str]:
    assert found is not None
    return [
        f"py:{step.python.function}" if step.python else str(step.native.function if step.native else None)
        for step in found.steps
        if not step.is_plumbing
    ]


def test_one_for_one():
    found = merged(evidence(["crash", EVALUATION, "sorted", EVALUATION, "_start"], ["key", "main"]))
    assert shown(found) == ["crash", "py:key", "sorted", "py:main"]
    assert found is not None
    assert found.is_exact


def test_more_python_frames_than_evaluations_go_to_the_innermost():
    """From 3.11 on one evaluation runs several Python functions."""
    found = merged(evidence(["crash", EVALUATION, "sorted", EVALUATION], ["a", "b", "c", "main"]))
    assert shown(found) == ["crash", "py:a", "py:b", "py:c", "sorted", "py:main"]
    assert found is not None
    assert not found.is_exact
    assert "approximate" in found.source


def test_fewer_python_frames_than_evaluations_belong_to_the_inner_ones():
    found = merged(evidence(["crash", EVALUATION, "sorted", EVALUATION], ["a"]))
    assert shown(found) == ["crash", "py:a", "sorted"]


def test_a_list_that_was_cut_is_not_stretched_over_the_gap():
    native = [EVALUATION, "map_next", EVALUATION, "map_next", EVALUATION, "run_it"]
    found = merged(evidence(native, ["flatten"] * 100, gap=4))
    assert shown(found) == ["py:flatten", "map_next", "py:flatten", "map_next", "run_it"]


def test_a_recursion_in_c_leaves_its_python_frames_to_the_outer_end():
    found = merged(evidence(["walk", "walk", "walk", EVALUATION, EVALUATION], ["die", "work", "main"], gap=2))
    assert shown(found) == ["walk", "walk", "walk", "py:die", "py:work", "py:main"]


def test_python_frames_beyond_the_gap_without_a_place_are_left_out():
    assert shown(merged(evidence([EVALUATION, "walk", "walk"], ["a", "b"], gap=2))) == [
        "py:a",
        "walk",
        "walk",
    ]


def test_there_is_nothing_to_merge():
    assert merged(Evidence()) is None
    assert merged(evidence(["crash"], ["main"])) is None
    assert merged(evidence([EVALUATION], [])) is None
    assert merged(evidence([EVALUATION], ["main"], exact=False)) is None


def test_inlined_copies_of_the_evaluation_do_not_count():
    one = evidence([EVALUATION, EVALUATION], ["main"])
    assert one.native_stack is not None
    inlined = NativeFrame(address=0, function=EVALUATION, inlined=True)
    native = NativeStack(source="test", frames=(inlined, one.native_stack.frames[1]))
    found = merged(Evidence(native_stack=native, python_stack=one.python_stack))
    assert found is not None
    assert found.is_exact


def test_a_real_one():
    names = shown(merged(evidence_of("use-after-free")))
    assert names[1:4] == ["run_decoder", "use_after_free", "py:die"]
