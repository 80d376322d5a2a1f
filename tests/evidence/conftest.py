from __future__ import annotations

import pytest

from tests.evidence.box_json import Shelf


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    return Shelf(monkeypatch)
