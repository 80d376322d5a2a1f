"""A place like a badly configured container: its own small /dev/shm, few descriptors, a memory group with a limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sysconfig
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import lastwords
from lastwords import _native
from tests.watch.running import clean_environment

ENTER = """
echo $$ > "$1/cgroup.procs"
ulimit -n "$2"
shm=$3; shift 3
exec unshare --mount sh -c 'mount -t tmpfs -o size="$0" tmpfs /dev/shm && exec "$@"' "$shm" "$@"
"""


class Container:
    def __init__(self, group: Path, descriptors: int, shm: str) -> None:
        self._words = ["sh", "-c", ENTER, "sh", str(group), str(descriptors), shm]

    def run(self, words: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._words, *words],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
            **options,
        )


def small_environment(place: Path) -> tuple[str, dict[str, str]]:
    """A Python with nothing installed that finds all of ours by PYTHONPATH, and the variables for it.

    A scan of it takes a moment; one of an environment with torch and CUDA takes a minute on a busy machine.
    """
    venv.create(place, with_pip=False, symlinks=True)
    paths = [str(Path(lastwords.__file__).parent.parent), sysconfig.get_path("platlib")]
    return str(place / "bin" / "python"), clean_environment(PYTHONPATH=os.pathsep.join(paths))


@contextmanager
def container(*, memory: int, descriptors: int, shm: str) -> Iterator[Container]:
    """Skips the test where root, a memory controller or mount namespaces are not to be had."""
    groups = _native.control_groups(os.getpid(), "memory")
    if not groups or os.geteuid() != 0:
        pytest.skip("needs root and a memory controller")
    directory, version = groups[0]
    place = Path(directory) / f"lastwords-container-{os.getpid()}"
    try:
        place.mkdir()
    except OSError:
        pytest.skip("memory groups cannot be made here")
    try:
        (place / ("memory.limit_in_bytes" if version == 1 else "memory.max")).write_text(str(memory))
        inside = Container(place, descriptors, shm)
        if inside.run(["true"]).returncode != 0:
            pytest.skip("no mount namespaces here, or no group of our own to enter")
        yield inside
    except OSError:
        pytest.skip("the memory group cannot be limited here")
    finally:
        _empty(place)
        place.rmdir()


def _empty(group: Path) -> None:
    """A test that ran out of time has killed no more than the shell it started."""
    while pids := (group / "cgroup.procs").read_text().split():
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.05)
