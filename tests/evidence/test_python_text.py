from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lastwords.evidence.python_text import MOST_FRAMES, MOST_THREADS, parse
from tests.evidence.box_json import PYTHON_TEXT


def test_the_dying_thread_is_told_from_the_others():
    current, others = parse(PYTHON_TEXT, "test")
    assert current is not None
    assert [(one.file, one.line, one.function) for one in current.frames] == [
        ("/srv/job/work.py", 7, "load"),
        ("/srv/job/work.py", 12, "<module>"),
    ]
    assert current.thread == "0x00007f3a5c1ff740"
    assert [one.frames[0].function for one in others] == ["wait"]


def test_names_of_threads_are_read_where_python_has_them():
    current, _ = parse(
        'Current thread 0x00007f3a [worker-1] (most recent call first):\n  File "a", line 1 in f', ""
    )
    assert current is not None
    assert current.thread == "worker-1"


def test_what_stands_before_and_after_is_ignored():
    text = f"Fatal Python error: Segmentation fault\n\n{PYTHON_TEXT}\nExtension modules: numpy (total: 1)\n"
    current, others = parse(text, "")
    assert current is not None
    assert len(current.frames) == 2
    assert len(others[0].frames) == 1


def test_an_unknown_line_and_odd_names():
    current, _ = parse(
        'Current thread 0x1 (most recent call first):\n  File "a "b", line 3.py", line ??? in <lambda>', ""
    )
    assert current is not None
    assert (current.frames[0].file, current.frames[0].line) == ('a "b", line 3.py', None)


def test_a_thread_without_python_frames():
    current, _ = parse("Current thread 0x1 (most recent call first):\n  <no Python frame>\n", "")
    assert current is not None
    assert current.frames == ()


def test_no_thread_may_have_died_in_python():
    current, others = parse('Thread 0x1 (most recent call first):\n  File "a", line 1 in f\n', "")
    assert current is None
    assert len(others) == 1


def test_it_is_bounded():
    frames = '  File "a", line 1 in f\n' * (MOST_FRAMES + 50)
    threads = "Thread 0x1 (most recent call first):\n" * (MOST_THREADS + 50)
    current, others = parse(f"Current thread 0x1 (most recent call first):\n{frames}{threads}", "")
    assert current is not None
    assert len(current.frames) == MOST_FRAMES
    assert len(others) == MOST_THREADS


@given(st.text())
def test_garbage_is_no_stack(text: str):
    current, others = parse(text, "")
    assert current is None or text.startswith("Current thread")
    assert isinstance(others, tuple)
