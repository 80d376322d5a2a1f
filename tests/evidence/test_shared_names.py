"""What a look-up that failed was about, read from the file that it stands in."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from lastwords.evidence.model import PythonException, PythonFrame, SharedName
from lastwords.evidence.shared_names import shared_name

MODULE = """
    labels = {}

    def register(item):
        labels[item] = "cat"

    def work(item):
        return labels[item]
"""
CLASS = """
    class Images(Dataset):
        cache: list[bytes] = list()

        @classmethod
        def warm_up(cls, image):
            cls.cache.append(image)

        def work(self, index):
            return self.cache[index]
"""


def looked_up(tmp_path: Path, text: str, line: int, kind: str = "KeyError") -> SharedName | None:
    file = tmp_path / "job.py"
    file.write_text(dedent(text).lstrip("\n"))
    frame = PythonFrame(file=str(file), line=line, function="work")
    return shared_name(PythonException(source="test", kind=kind, message="7", frames=(frame,)), None)


def test_a_dictionary_of_the_module_that_another_function_fills(tmp_path: Path):
    found = looked_up(tmp_path, MODULE, line=7)
    assert found is not None
    assert (found.name, found.level, found.line) == ("labels", "module", 1)
    assert (found.changed_by, found.changed_at) == ("register", 3)


def test_a_list_of_a_class(tmp_path: Path):
    found = looked_up(tmp_path, CLASS, line=9, kind="IndexError")
    assert found is not None
    assert (found.name, found.level, found.changed_by) == ("cache", "class", "warm_up")


@pytest.mark.parametrize(
    "text",
    [
        "labels = {}\ndef work(item):\n    return labels[item]",  # nobody fills it
        "labels = load()\ndef fill():\n    labels[1] = 2\ndef work(item):\n    return labels[item]",
        "def work(item):\n    labels = {}\n    return labels[item]\ndef fill(labels):\n    labels[1] = 2",
        "labels = {}\ndef work(item):\n    labels.update(load())\n    return labels[item]",  # its own doing
        "labels = {}\ndef fill():\n    labels[1] = 2\ndef work(rows):\n    return rows[7]",  # another thing
        "def work(:",
    ],
)
def test_what_is_not_shared_in_name_only(tmp_path: Path, text: str):
    line = next((n for n, one in enumerate(text.split("\n"), 1) if "return" in one), 1)
    assert looked_up(tmp_path, text, line) is None


def test_only_look_ups_count(tmp_path: Path):
    assert looked_up(tmp_path, MODULE, line=7, kind="ValueError") is None
    assert shared_name(None, None) is None


def test_a_file_that_is_gone_tells_nothing(tmp_path: Path):
    frame = PythonFrame(file=str(tmp_path / "gone.py"), line=7, function="work")
    assert (
        shared_name(PythonException(source="t", kind="KeyError", message="", frames=(frame,)), None) is None
    )
