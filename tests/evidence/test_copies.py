"""Run-time libraries that were loaded twice, told by the files that a process had code from."""

from __future__ import annotations

from lastwords.evidence.copies import copies

TORCH = "/env/lib/python3/site-packages/torch/lib/libgomp.so.1"
SKLEARN = "/env/lib/python3/site-packages/scikit_learn.libs/libgomp-e985bcbb.so.1.0.0"
INTEL = "/env/lib/libiomp5.so"
NOT_OPENMP = "/env/lib/libompi.so.4", "/env/lib/libgomposite.so", "/usr/lib/libstdc++.so.6"


def test_two_names_of_one_runtime_are_copies():
    (found,) = copies([TORCH, SKLEARN, INTEL, *NOT_OPENMP]) or ()
    assert (found.name, found.paths) == ("OpenMP", (TORCH, SKLEARN, INTEL))


def test_one_of_each_is_none():
    assert copies([TORCH, *NOT_OPENMP]) == ()


def test_no_list_is_not_an_empty_list():
    assert copies([]) is None
