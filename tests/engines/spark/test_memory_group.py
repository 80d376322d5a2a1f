"""The tests' own memory group leaves nothing behind, wherever they run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.engines.spark.memory_group import LITTLE, small_memory_group


def test_a_plain_directory_is_not_taken_for_a_group(tmp_path):
    """As /sys/fs/cgroup is one where version 1 is mounted below it."""
    (tmp_path / "memory").mkdir()
    with small_memory_group("little", tmp_path) as entrance:
        assert entrance is None
    assert [path.name for path in tmp_path.rglob("*")] == ["memory"]


def test_a_group_has_its_limit_and_is_gone_afterwards():
    with small_memory_group(f"lastwords-little-{os.getpid()}") as entrance:
        if entrance is None:
            pytest.skip("no memory group can be made here: root and a writable cgroup file system")
        group = Path(entrance).parent
        limits = [group / name for name in ("memory.limit_in_bytes", "memory.max")]
        assert [int(one.read_text()) for one in limits if one.exists()] == [LITTLE]
        joined = f"echo $$ > {entrance}; echo; exec sleep 600"
        member = subprocess.Popen(["sh", "-c", joined], stdout=subprocess.PIPE)
        assert member.stdout is not None and member.stdout.readline() == b"\n"
        member.kill()
        member.stdout.close()
    member.wait()
    assert not group.exists()
