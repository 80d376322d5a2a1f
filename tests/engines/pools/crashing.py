"""For pytest-xdist: one test that is well, and one that kills its worker."""

from deaths import die


def test_well():
    assert True


def test_that_kills():
    die("SIGSEGV")
