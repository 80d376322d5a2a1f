from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastwords.evidence.demangle import type_name


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("N7decoder14corrupt_headerE", "decoder::corrupt_header"),
        ("St9bad_alloc", "std::bad_alloc"),
        ("St13runtime_error", "std::runtime_error"),
        ("N3c105ErrorE", "c10::Error"),
        ("NSt8ios_base7failureB5cxx11E", "NSt8ios_base7failureB5cxx11E"),
        ("NSt7__cxx1112basic_stringE", "std::basic_string"),
        ("N12_GLOBAL__N_14FailE", "(anonymous namespace)::Fail"),
        ("7failure", "failure"),
        ("i", "int"),
        ("PKc", "char const*"),
        # More than this reads: left as it stands.
        ("St6vectorIiSaIiEE", "St6vectorIiSaIiEE"),
        ("N7decoder99corruptE", "N7decoder99corruptE"),
        ("7failure5other", "7failure5other"),
        ("N9999xE", "N9999xE"),
        ("NE", "NE"),
        ("", ""),
    ],
)
def test_names(mangled: str, name: str):
    assert type_name(mangled) == name


@given(st.text(alphabet="NStEKPc0123456789_abcI", max_size=60))
def test_nothing_breaks_it(mangled: str):
    assert isinstance(type_name(mangled), str)
