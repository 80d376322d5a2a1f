from __future__ import annotations

import msgspec
import pytest

from lastwords.diagnosis import diagnose
from lastwords.evidence import Evidence
from lastwords.evidence.model import NativeFrame
from tests.cases import diagnosis_of, evidence_of

replace = msgspec.structs.replace


def with_frames(evidence: Evidence, change) -> Evidence:
    stack = evidence.native_stack
    assert stack is not None
    return replace(evidence, native_stack=replace(stack, frames=tuple(change(one) for one in stack.frames)))


def signature(evidence: Evidence) -> str:
    return diagnose(evidence).signature


def test_it_names_cause_functions_library_and_your_function():
    assert diagnosis_of("illegal-instruction").signature == (
        "isa-mismatch | faiss::fvec_L2sqr | faiss::IndexFlat::search | _swigfaiss_avx2.so | cluster.py:search_batch"
    )


def test_it_is_the_same_at_other_addresses_on_other_hosts_for_other_items():
    evidence = evidence_of("null-dereference")
    process, item = evidence.process, evidence.item
    assert process is not None
    assert item is not None
    other = replace(
        with_frames(evidence, lambda one: replace(one, address=one.address + 4096)),
        process=replace(process, pid=1, host="elsewhere", worker=0),
        item=replace(item, index=77, key="dataset[77]"),
        time=0.0,
    )
    assert signature(other) == signature(evidence)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("sum<float>(int)", "sum<double>(long)"),
        ("ns::run<std::vector<int> >", "ns::run<std::map<int, std::set<int> > >"),
    ],
)
def test_template_arguments_do_not_matter(before: str, after: str):
    evidence = evidence_of("null-dereference")

    def rename(name: str):
        return lambda one: replace(one, function=name) if one.function == "sum_values" else one

    assert signature(with_frames(evidence, rename(before))) == signature(with_frames(evidence, rename(after)))


def test_the_version_in_a_library_name_does_not_matter():
    frame = NativeFrame(address=1, function="f", library="/opt/a/libthing.so.1.2")
    newer = replace(frame, library="/opt/b/libthing.so.1.3")
    evidence = evidence_of("wild-pointer")
    assert evidence.native_stack is not None
    one = replace(evidence, native_stack=replace(evidence.native_stack, frames=(frame,)))
    two = replace(evidence, native_stack=replace(evidence.native_stack, frames=(newer,)))
    assert signature(one) == signature(two)


def test_different_functions_are_different_deaths():
    evidence = evidence_of("null-dereference")
    other = with_frames(evidence, lambda one: replace(one, function=f"other_{one.function}"))
    assert signature(other) != signature(evidence)


def test_it_is_short_whatever_the_names():
    evidence = with_frames(evidence_of("wild-pointer"), lambda one: replace(one, function="x" * 5000))
    assert len(signature(evidence)) <= 200
