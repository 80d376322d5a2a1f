from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from lastwords.show import json as show_json
from lastwords.show.schema import schema
from tests.cases import diagnosis_of, names

ROOT = Path(__file__).resolve().parents[2]

# The contract, name by name. Programs of others read these: add, never rename.
TOP = {
    "schema",
    "death",
    "causes",
    "native_stack",
    "python_stack",
    "threads",
    "memory",
    "contradictions",
    "missing",
    "signature",
    "hang",
    "machine",
    "growth",
    "parent_end",
    "tried_alone",
}
DEATH = {
    "id",
    "time",
    "host",
    "pid",
    "role",
    "worker",
    "signal",
    "exit_code",
    "status_source",
    "item",
    "command",
    "attempt",
}
CAUSE = {"id", "title", "confidence", "for", "against", "fix", "facts"}
NATIVE = {"function", "library", "package", "file", "line", "address", "trust"}
PYTHON = {"file", "line", "function"}


def document(name: str) -> dict:
    return json.loads(show_json.render(diagnosis_of(name)))


@pytest.mark.parametrize("name", names())
def test_every_promised_name_is_there(name: str):
    found = document(name)
    assert found["schema"] == "lastwords/1"
    assert set(found) >= TOP
    assert set(found["death"]) >= DEATH
    assert found["causes"]
    assert all(set(cause) >= CAUSE for cause in found["causes"])
    assert all(set(frame) >= NATIVE for frame in found["native_stack"] or [])
    assert all(set(frame) >= PYTHON for frame in found["python_stack"] or [])
    assert all(set(one) == {"what", "how_to_collect"} for one in found["missing"])


def test_values():
    found = document("illegal-instruction")
    assert found["death"]["signal"] == "SIGILL"
    assert found["death"]["exit_code"] is None
    assert found["death"]["item"] == {"key": "dataset[5]", "index": 5}
    assert found["death"]["time"] == "2026-11-15T23:01:11.250Z"
    assert found["death"]["command"] == "python cluster.py"
    best = found["causes"][0]
    assert best["id"] == "isa-mismatch"
    assert best["facts"]["extension"] == "fma"
    assert 0.98 < best["confidence"] < 1
    assert best["for"]
    assert best["fix"]
    assert found["native_stack"][0]["address"] == "0x7f3a5c0123a7"
    assert found["native_stack"][0]["trust"] == "context"
    assert found["python_stack"][0] == {"file": "/srv/job/cluster.py", "line": 41, "function": "search_batch"}
    assert found["threads"][0]["python_stack"][0]["function"] == "wait"


def test_an_exceptions_frames_are_the_python_stack():
    found = document("python-exception")
    assert found["death"]["exit_code"] == 1
    assert found["python_stack"][0]["line"] == 17
    assert found["death"]["item"]["index"] == 5


def test_what_was_not_collected_is_null_and_what_is_empty_is_empty():
    nothing = document("exit-code-alone")
    assert nothing["native_stack"] is None
    assert nothing["threads"] is None
    assert nothing["death"]["item"] is None
    assert nothing["memory"] is None
    assert nothing["contradictions"] == []


def test_causes_are_ranked():
    confidences = [cause["confidence"] for cause in document("killed-and-nothing-known")["causes"]]
    assert confidences == sorted(confidences, reverse=True)


def test_many_are_an_array():
    found = json.loads(show_json.render_all([diagnosis_of("abort"), diagnosis_of("wild-pointer")]))
    assert [one["causes"][0]["id"] for one in found] == ["native-abort", "wild-pointer"]
    assert json.loads(show_json.render_all([])) == []


@pytest.mark.parametrize("name", names())
def test_the_documents_fit_their_structs(name: str):
    found = msgspec.json.decode(show_json.render(diagnosis_of(name)), type=show_json.Document)
    assert [cause.id for cause in found.causes] == [one.id for one in diagnosis_of(name).causes]


def test_the_schema_names_every_field():
    found = json.loads(schema())
    assert found["$id"] == "lastwords/1"
    assert set(found["$defs"]["Document"]["properties"]) == TOP
    assert set(found["$defs"]["Cause"]["properties"]) == CAUSE


def test_the_published_schema_is_this_one():
    published = ROOT / "docs" / "schema" / "lastwords-1.json"
    assert published.read_text() == schema(), "stale: make docs"


def test_what_became_of_the_item_alone():
    found = json.loads(show_json.render(diagnosis_of("dies-in-company")))["tried_alone"]
    assert found["outcome"] == "passed" and found["tries"] == 1 and found["is_that_try"] is False
    assert set(found) == {"outcome", "tries", "others", "others_then", "is_that_try"}
    assert json.loads(show_json.render(diagnosis_of("null-dereference")))["tried_alone"] is None
