from __future__ import annotations

import json

import msgspec
import pytest

from lastwords.diagnosis import diagnose
from lastwords.show import json as show_json
from lastwords.show import text
from lastwords.show.secrets import mask
from tests.cases import evidence_of


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("python train.py --token abc123 --lr 3", "python train.py --token *** --lr 3"),
        ("python train.py --hf-token=abc123", "python train.py --hf-token=***"),
        ("AWS_SECRET_ACCESS_KEY=abc/123 python x.py", "AWS_SECRET_ACCESS_KEY=*** python x.py"),
        ("""{"api_key": "abc123", "n": 1}""", """{"api_key": "***", "n": 1}"""),
        ("cannot reach postgres://bob:hunter2@db/x", "cannot reach postgres://bob:***@db/x"),
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer ***"),
        ("key AKIAABCDEFGHIJKLMNOP refused", "key *** refused"),
        ("password: 'hunter2'", "password: '***'"),
    ],
)
def test_secrets_are_hidden(before: str, after: str):
    assert mask(before) == after


@pytest.mark.parametrize(
    "harmless",
    [
        "KeyError: 'token'",
        "tokenizer.py:41 in encode:  return self.tokenizer(text)",
        "item 5 has a negative width",
        "in secret_santa · libgift.so",
        "http://localhost:8080/x@y",
        "",
    ],
)
def test_other_words_are_left_alone(harmless: str):
    assert mask(harmless) == harmless


def test_no_report_shows_them():
    evidence = evidence_of("python-exception")
    assert evidence.process is not None
    assert evidence.exception is not None
    process = msgspec.structs.replace(
        evidence.process, command=("python", "x.py", "--token", "hunter2-hunter2")
    )
    raised = msgspec.structs.replace(evidence.exception, message="login failed: password=hunter2-hunter2")
    diagnosis = diagnose(msgspec.structs.replace(evidence, process=process, exception=raised))
    printed = show_json.render(diagnosis).decode()
    assert "hunter2" not in text.render(diagnosis, full=True)
    assert "hunter2" not in printed
    assert json.loads(printed)["death"]["command"] == "python x.py --token ***"
