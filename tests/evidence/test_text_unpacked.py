"""Compressed logs: the same as plain ones, also where they break off."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
from pathlib import Path
from typing import Any

import pytest

from lastwords.diagnosis.explain import from_file
from lastwords.evidence.text import UnreadableLog, from_log, from_stream, from_text
from lastwords.evidence.text.excerpt import SMALL, excerpt

DEATH = b"RuntimeError: DataLoader worker (pid 4711) is killed by signal: Illegal instruction. \n"
CHATTER = b"".join(b"step %d loss 0.%d\n" % (number, number * 7919) for number in range(60_000))
PACKERS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS.keys())
@pytest.mark.parametrize("log", [DEATH, CHATTER + DEATH + CHATTER], ids=["short", "long"])
def test_it_is_read_as_if_it_were_plain(pack: Any, log: bytes):
    assert from_text(pack(log)) == from_text(log)


def test_a_log_that_was_appended_to_as_gzip_allows_is_read_to_its_end():
    assert excerpt(gzip.compress(b"a\n") + gzip.compress(b"b\n")).lines == excerpt(b"a\nb\n").lines


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS.keys())
def test_what_breaks_off_is_read_up_to_there_and_said_to(pack: Any):
    log = DEATH + CHATTER
    packed = (
        pack(log) if pack is not bz2.compress else pack(DEATH) + pack(CHATTER)
    )  # which unpacks whole blocks
    found = from_text(packed[: len(packed) * 2 // 3], "job.log.gz")
    assert found.status is not None and found.status.signal == "SIGILL"
    assert found.notes == ("job.log.gz breaks off where it is compressed: what stands before that was read",)


def test_damage_in_the_middle_is_no_error_of_ours():
    packed = bytearray(gzip.compress(DEATH + CHATTER))
    packed[len(packed) // 2] ^= 0xFF
    found = from_text(bytes(packed))
    assert found.status is not None and found.status.signal == "SIGILL" and found.notes


def test_a_pipe_will_do():
    """It cannot be gone back in."""

    class Pipe(io.BytesIO):
        def seek(self, *_: int) -> int:
            raise OSError(errno.ESPIPE, "Illegal seek")

    assert from_stream(Pipe(gzip.compress(DEATH))) == from_text(DEATH)


def test_a_disk_that_fails_is_not_taken_for_a_torn_log():
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() >= SMALL // 2:
                raise OSError(errno.EIO, "Input/output error")
            return super().read(min(size, SMALL // 4) if size is not None and size >= 0 else SMALL // 4)

    packed = gzip.compress(CHATTER, compresslevel=0)
    with pytest.raises(OSError, match="Input/output"):
        from_stream(Failing(packed))


@pytest.mark.parametrize(
    ("head", "says", "then"),
    [
        (b"\x28\xb5\x2f\xfd", "compressed by zstd", "zstdcat {} | lastwords explain -"),
        (b"PK\x03\x04", "a zip archive", "unzip -p {} | lastwords explain -"),
    ],
)
def test_what_cannot_be_unpacked_here_says_how(tmp_path: Path, head: bytes, says: str, then: str):
    path = tmp_path / "job.log.zst"
    path.write_bytes(head + bytes(100))
    with pytest.raises(UnreadableLog, match=says) as refused:
        from_file(path)
    assert refused.value.then == then


def test_a_compressed_core_is_no_log(tmp_path: Path):
    path = tmp_path / "core.gz"
    path.write_bytes(gzip.compress(b"\x7fELF" + bytes(100)))
    with pytest.raises(UnreadableLog, match="a core file or a program: unpack it first"):
        from_log(path)


@pytest.mark.parametrize("size", range(12))
def test_a_few_bytes_are_a_log(size: int):
    assert [line.text for line in excerpt(b"abcdefghijkl"[:size]).lines] == ["abcdefghijkl"[:size]] * bool(
        size
    )
