"""What leaves a host: no secret, no memory of the process, and all that the causes need."""

from __future__ import annotations

import json

import msgspec
import pytest

from lastwords.diagnosis import diagnose
from lastwords.evidence import Evidence, Process
from lastwords.evidence.model import Pointer
from lastwords.evidence.travel import masked, packed
from tests import cases
from tests.collect.hosts import death


def arrived(evidence: Evidence) -> Evidence:
    return msgspec.json.decode(packed(evidence), type=Evidence)


@pytest.mark.parametrize("name", cases.names())
def test_the_diagnosis_is_the_same_there(name: str):
    evidence = cases.evidence_of(name)
    here, there = diagnose(evidence), diagnose(arrived(evidence))
    assert [(one.id, one.confidence) for one in there.causes] == [
        (one.id, one.confidence) for one in here.causes
    ]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("python train.py --lr 0.1", "python train.py --lr 0.1"),
        ("unexpected token '<' in line 3", "unexpected token '<' in line 3"),
        ("HF_TOKEN=hf_abcdefghijklmnopqrstuv", "HF_TOKEN=***"),
        ("db_password: 'hunter2'", "db_password: '***'"),
        ("see s3://user:pa55@host/bucket", "see s3://user:***@host/bucket"),
        ("key AKIAABCDEFGHIJKLMNOP was refused", "key *** was refused"),
        ('{"api_key": "abc", "n": 3}', '{"api_key": "***", "n": 3}'),
        ("sent ghp_0123456789abcdefghijABCDEFGHIJ", "sent ***"),
    ],
)
def test_secrets_are_masked(text: str, left: str):
    assert masked(text) == left


def test_the_word_after_a_secret_option_too():
    command = ("python", "train.py", "--hub-token", "abc", "--epochs", "3", "--password=x")
    evidence = msgspec.structs.replace(death(), process=Process(source="box", pid=1, command=command))
    found = arrived(evidence).process
    assert found is not None
    assert found.command == (
        "python",
        "train.py",
        "--hub-token",
        "***",
        "--epochs",
        "3",
        "--password=***",
    )


def test_memory_that_reads_as_text_stays_here():
    pointers = (
        Pointer(source="box", register="rax", value=1, bytes=(b"\1\0\0\0\0\0\0\0" + b"my secret").hex()),
        Pointer(source="box", register="rbx", value=2, bytes="00007f0011223344"),
        Pointer(source="box", register="rcx", value=3, bytes="no hex"),
    )
    found = arrived(msgspec.structs.replace(death(), pointers=pointers)).pointers
    assert found is not None
    assert [one.bytes for one in found] == ["0100000000000000", "00007f0011223344", ""]


def test_it_is_plain_json():
    assert json.loads(packed(death()))["process"]["host"] == "gpu-07"
