from __future__ import annotations

import io
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from syrupy.assertion import SnapshotAssertion

from lastwords.diagnosis import diagnose
from lastwords.evidence import Item
from lastwords.evidence.text import from_text
from lastwords.show import json as show_json
from lastwords.show import listing, text, why_not
from lastwords.show.clean import clean
from tests.cases import diagnosis_of, evidence_of, names

replace = msgspec.structs.replace
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("name", names())
def test_panels(name: str, panel: SnapshotAssertion):
    assert text.render(diagnosis_of(name)) == panel


@pytest.mark.parametrize("name", ["null-dereference", "python-exception", "killed-from-outside"])
def test_the_whole_account(name: str, panel: SnapshotAssertion):
    assert text.render(diagnosis_of(name), full=True) == panel


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("illegal-instruction", ["SIGILL", "item 5", "fvec_L2sqr", "cluster.py:41", "isa-mismatch", "fma"]),
        ("null-dereference", ["SIGSEGV", "item 5", "sum_values", "cluster.py:41", "null-pointer"]),
        ("killed-from-outside", ["SIGKILL", "item 5", "external-kill", "oom_kill"]),
        ("python-exception", ["ValueError", "item 5", "images.py:17", "python-exception", "decode"]),
    ],
)
def test_a_panel_answers_every_question(name: str, words: list[str]):
    shown = text.render(diagnosis_of(name))
    assert [word for word in words if word not in shown] == []
    assert "What to do" in shown
    assert "1. " in shown


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", names())
def test_nothing_is_wider_than_the_terminal(name: str, full: bool, width: int):
    """Except commands: they are to be copied, and stay in one piece."""
    commands = {step.command for one in diagnosis_of(name).causes for step in one.steps}
    for line in text.render(diagnosis_of(name), full=full, width=width).splitlines():
        assert cell_len(line) <= width or line.strip() in commands


@pytest.mark.parametrize("key", ["数据集/" * 40, "x" * 300, "💥 " * 60, "a" + "\u0301" * 200])
def test_wide_and_endless_names_do_not_break_the_columns(key: str):
    evidence = replace(evidence_of("null-dereference"), item=Item(source="test", key=key))
    lines = text.render(diagnose(evidence)).splitlines()
    assert max(cell_len(line) for line in lines) <= 80


@given(st.text(max_size=400), st.integers(40, 100))
def test_folding_loses_nothing(content: str, width: int):
    cleaned = clean(content)
    lines = [line.plain for line in text.fold(cleaned, "plain", width)]
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(cleaned.split())


@given(st.text())
def test_clean_text_has_no_control_characters(content: str):
    assert all(character.isprintable() for character in clean(content).replace("\u3000", " "))


def test_escape_sequences_of_the_victim_do_not_reach_the_terminal():
    evidence = replace(
        evidence_of("python-exception"), item=Item(source="test", key="\x1b[2J\x07\u202egnp.exe")
    )
    shown = text.render(diagnose(evidence))
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)


class TestColour:
    def shown(self, stream: io.StringIO) -> str:
        text.show(diagnosis_of("null-dereference"), stream=stream)
        return stream.getvalue()

    @pytest.fixture(autouse=True)
    def environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm")

    def test_a_terminal_gets_it_and_the_same_words(self):
        shown = self.shown(Terminal())
        assert "\x1b[" in shown
        assert ESCAPE.sub("", shown) == self.shown(io.StringIO())

    def test_a_pipe_does_not(self):
        assert "\x1b" not in self.shown(io.StringIO())

    @pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
    def test_nor_who_does_not_want_it(self, monkeypatch: pytest.MonkeyPatch, name: str, value: str):
        monkeypatch.setenv(name, value)
        assert "\x1b" not in self.shown(Terminal())

    def test_an_empty_no_color_is_not_set(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("NO_COLOR", "")
        assert "\x1b" in self.shown(Terminal())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_of_another_encoding_is_no_reason_to_fail(encoding: str):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    evidence = replace(evidence_of("null-dereference"), item=Item(source="test", key="数据"))
    text.show(diagnose(evidence), stream=stream)
    stream.seek(0)
    shown = stream.read()
    assert "null-pointer 99 %" in shown
    assert ("x worker 3" in shown) is (encoding != "utf-8")


def test_certainty_is_never_100_percent():
    from lastwords.show.report import percent

    assert [percent(value) for value in (0.0, 0.004, 0.5, 0.996, 1.0)] == [
        "1 %",
        "1 %",
        "50 %",
        "99 %",
        "99 %",
    ]


def test_a_line_of_a_log_is_quoted_once():
    """It may be two reasons: a fork that was in the middle of something, and who waits for that."""
    line = (
        "objc[9]: +[NSNumber initialize] may have been in progress in another thread when fork() was called."
    )
    assert text.render(diagnose(from_text(line)), width=200).count("objc[9]") == 1


def test_a_death_that_is_not_kept_is_not_offered_again():
    shown = text.render(diagnose(evidence_of("null-dereference", death="")))
    assert "lastwords show" not in shown


class TestListing:
    def test_deaths_of_a_kind_stand_together(self, panel: SnapshotAssertion):
        some = [
            diagnose(replace(evidence_of(name, death=f"{number:08x}"), time=1794783671.0 - number))
            for number, name in enumerate(
                ["abort", "null-dereference", "abort", "nothing-known", *["wild-pointer"] * 7]
            )
        ]
        assert listing.render(some) == panel

    def test_nothing_has_died(self):
        assert "Nothing has died here" in listing.render([])

    def test_a_time_that_no_calendar_has(self):
        odd = diagnose(replace(evidence_of("abort"), time=1e300))
        assert "at a time unknown" in listing.render([odd])


def test_why_not(panel: SnapshotAssertion):
    from lastwords.diagnosis import why_not as ask

    answer = ask(diagnosis_of("null-dereference"), "external-kill")
    assert answer is not None
    assert why_not.render(answer) == panel


def test_why_not_is_json_too():
    from lastwords.diagnosis import why_not as ask

    answer = ask(diagnosis_of("null-dereference"), "isa-mismatch")
    assert answer is not None
    decoded = msgspec.json.decode(show_json.encode(answer))
    assert decoded["id"] == "isa-mismatch"
    assert decoded["terms"][0]["weight"] < 0
