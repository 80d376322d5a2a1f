"""The page: one file that needs nothing else, in which no word of a victim is more than a word."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import msgspec
import pytest

from lastwords.diagnosis import Diagnosis, diagnose
from lastwords.evidence.model import Item, PythonException
from lastwords.show import html
from tests.cases import diagnosis_of, evidence_of, names

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&"
VOID = {"meta"}


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def hostile() -> Diagnosis:
    found = msgspec.structs.replace(
        evidence_of("python-exception"),
        item=Item(source=HOSTILE, key=HOSTILE),
        exception=PythonException(source=HOSTILE, kind=HOSTILE, message=HOSTILE, fatal=True),
        notes=(HOSTILE,),
    )
    return diagnose(found)


@pytest.mark.parametrize("name", names())
def test_every_case_is_a_whole_page_with_its_sentence_and_steps(name: str):
    diagnosis = diagnosis_of(name)
    words = " ".join(read(html.render([diagnosis])).words)
    best = diagnosis.best
    assert best is not None
    assert " ".join(best.sentence.split())[:60] in " ".join(words.split())
    assert all(step.command.split()[0] in words for step in best.steps if step.command)


def test_nothing_comes_from_elsewhere_and_nothing_runs():
    reader = read(html.render([diagnosis_of("null-dereference"), hostile()]))
    assert reader.tags <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "span", "pre", "ol", "li", "nav", "a",
        "article", "details", "summary",
    }  # fmt: skip
    assert not {name for name in reader.attributes if name.startswith("on") or name in ("src", "style")}
    page = html.render([diagnosis_of("null-dereference")])
    assert not re.search(r"https?://|url\(|@import", page)
    assert "Content-Security-Policy" in page


def test_a_victims_words_stay_words():
    page = html.render([hostile()])
    assert "<script" not in page and "<img" not in page
    assert "&lt;script&gt;" in page


def test_several_deaths_have_an_index():
    page = html.render([diagnosis_of("null-dereference"), diagnosis_of("double-free")])
    assert 'href="#death-2"' in page and 'id="death-2"' in page
    assert "Nothing has died" in html.render([])


def test_it_says_what_became_of_the_item_alone():
    page = html.render([diagnosis_of("dies-in-company"), diagnosis_of("dies-alone-too")])
    assert "item 5 passed when it ran again alone" in page
    assert "item 5 died the same way when it ran again alone" in page
    assert "ran again alone" not in html.render([diagnosis_of("null-dereference")])
