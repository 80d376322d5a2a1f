"""A user's file in the place of a standard module: told from modules that are what they should be."""

from __future__ import annotations

import pytest

from lastwords.diagnosis import explain

SHADOWED = [
    "ImportError: cannot import name 'Random' from 'random' (/home/me/project/random.py)",
    (
        "ImportError: cannot import name 'Random' from partially initialized module 'random' "
        "(most likely due to a circular import) (/home/me/project/random.py)"
    ),
    (
        "AttributeError: module 'random' has no attribute 'randint' (consider renaming '/srv/app/random.py' since it has "
        "the same name as the standard library module named 'random' and prevents importing that standard library module)"
    ),
    (
        'Traceback (most recent call last):\n  File "/srv/app/main.py", line 2, in <module>\n    import requests\n'
        '  File "/srv/app/queue.py", line 9, in <module>\n    import urllib3\n'
        "AttributeError: module 'queue' has no attribute 'LifoQueue'"
    ),
]
INNOCENT = [
    "ImportError: cannot import name 'Random' from 'random' (/usr/lib/python3.11/random.py)",
    (
        "ImportError: cannot import name 'cached_download' from 'huggingface_hub' "
        "(/venv/lib/python3.11/site-packages/huggingface_hub/__init__.py)"
    ),
    "AttributeError: module 'numpy' has no attribute 'int'",
]


@pytest.mark.parametrize("log", SHADOWED)
def test_a_file_that_hides_a_standard_module_is_named(log: str):
    best = explain(f"{log}\n").best
    assert best is not None and best.id == "missing-dependency" and best.confidence > 0.9
    assert str(best.facts["file"]).endswith((".py",))
    assert "another name" in best.steps[0].text


@pytest.mark.parametrize("log", INNOCENT)
def test_other_modules_hide_nothing(log: str):
    mentions = explain(f"{log}\n").evidence.mentions or ()
    assert not [one for one in mentions if one.kind == "hidden-module"]
