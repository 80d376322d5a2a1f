"""After each test nothing is left: the checks of the supervisor's own tests, and a machine with torch."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

from tests.survive.conftest import home, nothing_is_left

__all__ = ["home", "nothing_is_left"]


@pytest.fixture(autouse=True)
def let_go(nothing_is_left: None) -> Iterator[None]:
    """An iterator that an exception's traceback holds ends its workers when it is collected; they go after it."""
    yield
    gc.collect()
