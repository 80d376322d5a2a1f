"""`lastwords.require`: everything that is missing, in one error, before the first item."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys

import pytest

import lastwords
from lastwords.prevent import features, room, sizes
from lastwords.prevent import require as module


def test_what_is_here_is_enough():
    lastwords.require(shm=0, open_files=1, memory=1, disk=1, cpus=1)
    lastwords.require(*sorted(module.usable_features() & frozenset(features.known())))


def test_all_that_is_missing_is_in_one_error():
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    with pytest.raises(lastwords.Unfit) as caught:
        lastwords.require(
            "fma4", "tbm", shm="900TB", open_files=soft + 1, memory="900TB", disk="900PB", cpus=1e6
        )
    text = str(caught.value)
    assert len(caught.value.problems) == 6
    assert "\n" not in text
    assert os.uname().nodename in text
    for word in ("no fma4, no tbm", "/dev/shm has", f"may open {soft} files", "of memory required", "CPUs"):
        assert word in text


def test_it_is_a_runtime_error():
    assert issubclass(lastwords.Unfit, RuntimeError)


@pytest.mark.parametrize(
    ("names", "keywords", "said"),
    [
        (("avx3",), {}, "did you mean avx"),
        (("",), {}, "no CPU feature called ''"),
        ((), {"shm": "lots"}, "8GB"),
        ((), {"shm": -1}, "-1"),
        ((), {"memory": "1e9"}, "1e9"),
        ((), {"open_files": True}, "True"),
        ((), {"disk": float("nan")}, "nan"),
        ((), {"cpus": float("inf")}, "inf"),
        ((), {"cpus": "4"}, "'4'"),
    ],
)
def test_what_makes_no_sense_is_the_caller_s_error(names, keywords, said):
    with pytest.raises(ValueError, match=r".") as caught:
        lastwords.require(*names, **keywords)
    assert said in str(caught.value)


def test_the_fix_depends_on_the_hard_limit():
    code = """
import resource, lastwords
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
try:
    lastwords.require(open_files=128)
except lastwords.Unfit as error:
    print(error)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    lastwords.require(open_files=128)
except lastwords.Unfit as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    first, second = said.splitlines()
    assert first.endswith("it may open 64 files of the 128 required (ulimit -n 128)")
    assert "the hard limit is 64" in second


def test_it_is_light():
    """Inside a job: the standard library, and for the CPU's own answer our native module."""
    code = "import sys, lastwords; lastwords.require(shm=0, open_files=1); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "lastwords.prevent.require" in loaded.stdout.split()
    assert not {"lastwords._native", "msgspec", "click", "rich"} & set(loaded.stdout.split())
    code = "import sys, lastwords; lastwords.require(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"msgspec", "click", "rich"} & set(loaded.stdout.split())


def test_the_cpu_s_own_answer_and_the_kernel_s_list():
    """On a real machine they are one; under an emulator the CPU is right."""
    listed, asked = frozenset({"fma", "avx2", "constant_tsc"}), frozenset({"avx2", "sse4_2"})
    assert module.usable(listed, None) == listed
    assert module.usable(listed, asked) == {"avx2", "sse4_2", "constant_tsc"}


@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="needs qemu-user")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="emulates another x86")
def test_an_emulated_cpu_is_asked_itself():
    code = "import lastwords; lastwords.require('avx2'); lastwords.require('avx2', 'fma')"
    words = ["qemu-x86_64", "-cpu", "Haswell,-fma", sys.executable, "-c", code]
    result = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].endswith("its CPU has no fma")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8GB", 8 * 10**9),
        ("8GiB", 8 << 30),
        ("64 MiB", 64 << 20),
        ("1.5k", 1500),
        ("7", 7),
        (12.9, 12),
        ("2TB", 2 * 10**12),
    ],
)
def test_sizes(text, number):
    assert sizes.parse(text) == number


@pytest.mark.parametrize("text", ["", "GB", "8iB", "8 G B", "8GBB", "-8GB", None, [], "9" * 80])
def test_what_is_no_size(text):
    with pytest.raises(sizes.NotASize):
        sizes.parse(text)


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0 bytes"), (64 << 20, "64 MiB"), (1 << 30, "1 GiB"), (38_535_680, "38.5 MB"), (999, "999 bytes")],
)
def test_sizes_in_words(number, words):
    assert sizes.words(number) == words


def test_levels_hold_what_is_below_them():
    assert "sse4_2" in features.expand(["x86-64-v3"])
    assert "avx2" in features.expand(["x86_64_v3"])
    assert "avx512f" not in features.expand(["x86-64-v3"])
    assert features.level_of(features.expand(["x86-64-v3"])) == "x86-64-v3"
    assert features.level_of(["sse2"]) == "x86-64-v1"


def test_the_fewest_names_that_say_it_all():
    assert features.essential(["avx", "avx2", "sse4_2", "fma"]) == ["avx2", "fma"]
    assert features.essential(["avx512vl", "avx512f", "lzcnt"]) == ["abm", "avx512vl"]


def test_every_implied_feature_is_known():
    for name in features.known():
        assert features.implied(features.canonical(name)) <= frozenset(features.known())


def test_what_is_left_comes_least_first():
    rooms = room.memory()
    assert rooms == sorted(rooms, key=lambda one: one.free)
    assert all(0 <= one.free <= one.limit for one in rooms)
    assert 0 < room.cpus()[0] <= (os.cpu_count() or 1)
