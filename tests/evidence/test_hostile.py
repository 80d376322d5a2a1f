"""Whatever a box says: it becomes evidence, a diagnosis and a report, or is refused as no box."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lastwords.diagnosis import diagnose
from lastwords.evidence import Status, UnreadableBox, from_box
from lastwords.show import json as show_json
from lastwords.show import text
from tests.evidence.box_json import PYTHON_TEXT, Shelf, autopsy, box, crash, raised, sent

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(max_size=40),
    st.just("\x1b[31m\u202e" * 20),
)
WHOLE = box(
    crash=crash(),
    python_text=PYTHON_TEXT,
    exceptions=[raised("ValueError", "bad", fatal=True)],
    events=[sent(4711, 9)],
    items=[{"index": 1, "rss_change_kib": 5}] * 5,
)


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """Every place in a JSON value that could be changed."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in places(one, (*path, key)))]


def changed(whole: Any, path: tuple, value: Any) -> Any:
    if not path:
        return value
    copy = json.loads(json.dumps(whole))
    target = copy
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return copy


def explain(shelf: Shelf, content: Any, found: Any) -> None:
    path = shelf.put("a", content, found)
    try:
        evidence = from_box(path, Status(source="test", signal="SIGSEGV"), time=1e9)
    except UnreadableBox:
        return
    diagnosis = diagnose(evidence)
    assert diagnosis.notes == ()
    for full in (False, True):
        shown = text.render(diagnosis, full=full)
        assert "\x1b" not in shown
        assert "\u202e" not in shown
    assert json.loads(show_json.render(diagnosis))["schema"] == "lastwords/1"


RELAXED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@RELAXED
@given(place=st.sampled_from(places(WHOLE)), value=SCALARS)
def test_any_field_of_the_box_may_hold_anything(shelf: Shelf, place: tuple, value: Any):
    explain(shelf, changed(WHOLE, place, value), autopsy())


@RELAXED
@given(place=st.sampled_from(places(autopsy())), value=SCALARS)
def test_any_field_of_the_autopsy_may_hold_anything(shelf: Shelf, place: tuple, value: Any):
    explain(shelf, WHOLE, changed(autopsy(), place, value))


@RELAXED
@given(signal=st.integers(-5, 200), code=st.integers(-10, 130), address=st.integers(0, 2**64 - 1))
def test_any_signal_has_a_report(shelf: Shelf, signal: int, code: int, address: int):
    explain(shelf, box(crash=crash(signal=signal, code=code, address=address)), autopsy())
