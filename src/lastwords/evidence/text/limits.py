"""Limits that were reached: disks, shared memory, descriptors, threads; and files that are not whole."""

# ruff: noqa: S108 (paths to recognise in a text; nothing is written there)

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from lastwords.evidence.model import Mention
from lastwords.evidence.text.excerpt import Excerpt
from lastwords.evidence.text.hedges import NODE_IS_WELL
from lastwords.evidence.text.reader import Reader, mention, says

# Code that keeps semaphores, tensors or chunks in /dev/shm: errno 28 from there is about shared memory.
_SHARED = re.compile(
    r"SemLock|(?:multiprocessing|billiard)/(?:synchronize|queues|heap|shared_memory|context|pool)|_multiprocessing"
    r"|torch/multiprocessing|shared_memory|posix_ipc|/dev/shm|interprocess|\bshm[-_](?!size)|Memory file system|memory file system|psm_|/torch_\d"
    r"|shm_open|shm\.h\b|shm\.cc\b|shmem|plasma|ctx\.Lock|ctx\.Semaphore|mp\.Queue|mp\.Lock"
)
_DISK = re.compile(
    r"/tmp|spill|checkpoint|torch\.save|safetensors|\.write\(|h5py|to_parquet|logging/__init__|shutil|/var/|/home/"
    r"|/data|/mnt|wandb|serialization\.py|disk|\.cache|java\.io|inline_container|left on device: b?['\"]\w",
    re.IGNORECASE,
)
NEAR = 12


def _no_space(excerpt: Excerpt) -> Iterator[Mention]:
    found = {
        index
        for needle in ("no space left", "errno 28", "enospc")
        for index in excerpt.with_needle(needle, 60)
    }
    for index in sorted(found):
        yield mention("no-space", excerpt, index, "the system", {"where": _where(excerpt, index)})


def _where(excerpt: Excerpt, index: int) -> str:
    """Of what there is no space: told by the path in the line, else by the code around it."""
    text = excerpt.lines[index].text
    if _SHARED.search(text):
        return "shared memory"
    around = [line.text for line in excerpt.lines[max(0, index - NEAR) : index + 3]]
    above = around[: min(index, NEAR) + 1]
    if any(_SHARED.search(one) for one in [*above, *_frames_below(excerpt, index)]):
        return "shared memory"
    return "disk" if any(_DISK.search(one) for one in around) else "unknown"


def _frames_below(excerpt: Excerpt, index: int) -> Iterator[str]:
    """Some reports have the exception first, and its frames under it."""
    below = (line.text for line in excerpt.lines[index + 1 : index + 1 + 2 * NEAR])
    yield from itertools.takewhile(lambda text: text.startswith((" ", "\t")), below)


READER = Reader(
    "the system",
    (
        says("shm-full", "shared memory", r"creating shared memory segment|allocate shared memory|shared memory.{0,40}(?:no space|full|exhaust)"),
        says("shm-full", "/dev/shm", r"/dev/shm.{0,60}(?:no space|full|100%|too small|exhaust|insufficient)|(?:no space|not enough|insufficient|fail).{0,80}/dev/shm"),
        says("shm-full", "shmmax|shmget", r"shmget.{0,60}(?:invalid|no space|cannot)|exceeds? .{0,20}SHMMAX"),
        says("shm-small", "shm", r"(?:shm|/dev/shm)\s{1,20}\d{1,8}[KM]?\s{1,20}\d{1,8}[KM]?\s{1,20}0\s{1,20}100%"),
        # Docker's 64 MB, before anything is in it.
        says("shm-small", "/dev/shm", r"\b(?:shm|tmpfs|none)\s{1,20}(?:64M|65536K?|64\.0M)\s.{0,60}\s/dev/shm\b", unless=r"\s0\s{1,20}100%", size="64 MB"),
        says("shm-hint", "shared memory|shm-size", r"out of shared memory|insufficient shared memory|shared memory limit|shm-size"),
        says("shm-hint", "shm", r"insufficient shared memory \(shm\)|increase.{0,20}shm"),
        says("shm-open-failed", "unable to open shared memory object"),
        says("shm-full", "unable to write to file", r"unable to write to file <?/?torch_\d"),
        says("shm-open-failed", "unable to mmap", r"unable to mmap \d{1,20} bytes from file"),
        says("disk-full", "% full", r"is over \d\d% full|\b(?:9[5-9]|100)% full"),
        says("disk-full", "disk|ephemeral", r"disk (?:is )?full|DiskPressure|out of disk|no disk space|low disk space|disk space.{0,30}(?:exhaust|insufficient|low|ran out)|ephemeral-storage.{0,80}(?:exceed|evict|usage)|(?:exceed|evict|low on resource|limit).{0,80}ephemeral", unless=NODE_IS_WELL),
        says("disk-full", "quota|errno 122", r"disk quota exceeded|quota exceeded|Errno 122"),
        says("disk-full", "outofdisk", r"OutOfDiskError"),
        says("disk-full", "not enough", r"not enough (?:free )?(?:disk )?space|not enough free disk"),
        says("disk-full", "database or disk is full"),
        says("write-failed", "failed writing file", r"PytorchStreamWriter failed writing file.{0,200}write failed"),
        says("open-files", "too many open files"),
        says("open-files", "errno 24|emfile|enfile|errno 23", r"Errno 24\b|\bE[MN]FILE\b"),
        says("open-files", "ancdata", r"received 0 items of ancdata|items of ancdata"),
        says("open-files", "too many", r"too many (?:open )?(?:files|file descriptors|handles)"),
        says("open-files", "filedescriptor out of range", r"filedescriptor out of range in select"),
        says("no-threads", "pthread_create", r"pthread_create (?:failed|\(\) failed|error|.{0,40}Resource temporarily)", unless="Operation not permitted"),
        says("seccomp", "operation not permitted", r"(?:pthread_create|clone3?|create thread|new thread).{0,80}Operation not permitted"),
        says("no-threads", "resource temporarily unavailable", r"what\(\):|fork|thread|Errno 11|clone|BlockingIOError|OpenBLAS|process"),
        says("no-threads", "thread creation", r"thread creation (?:failed|via pthread_create)"),
        says("no-threads", "threadpoolbuilderror", r"ThreadPoolBuildError.{0,80}(?:code: 11\b|WouldBlock)", by="rayon"),
        says("no-threads", "native thread", r"unable to create (?:new )?native thread"),
        says("no-threads", "thread", r"(?:cannot|can't|unable to|failed to) (?:create|spawn|start) (?:a )?(?:new )?(?:worker |OS |native )?thread", unless="can't start new thread"),
        says("no-threads", "resources for omp thread", r"unable to allocate necessary resources for OMP thread"),
        says("no-threads", "pids.max|user processes|nproc", r"(?:pids\.max|max user processes|nproc)\b.{0,60}(?:exceed|reach|hit\b|exhaust|too (?:low|small))|(?:exceed|reach|hit|exhaust|ran into).{0,60}(?:pids\.max|max user processes|nproc)\b"),
        says("threads-refused", "can't start new thread"),
        # Docker 20.10.10 is the first that answers clone3 so that glibc 2.34 and later fall back to clone.
        says("old-runtime", "docker", r"docker\D{0,40}(?<![\d.])(?P<version>1[789]\.\d\d(?:\.\d{1,2})?|20\.10\.\d)(?![\d.])"),
        says("unconfined-works", "privileged|unconfined", r"\b(?:works?|fine|runs|succeeds|gone)\b.{0,40}(?:privileged|unconfined)|(?:privileged|unconfined)\b.{0,40}\b(?:works?|fine|runs|succeeds|helps?|fixes|solves)\b"),
        says("seccomp", "bad system call|sigsys", r"Bad system call|SIGSYS"),
        says("seccomp", "clone3", r"clone3.{0,60}(?:not permitted|EPERM|seccomp|blocked)"),
        says("seccomp", "seccomp", r"seccomp.{0,40}(?:profile|block|den|reject|not permitted)|(?:block|den|reject|not permitted).{0,40}seccomp"),
        says("file-damaged", "truncated", r"(?:image )?file (?:is |was )?truncated|truncated (?:file|record|input|data|header|tar|gzip|image|block)|unexpectedly truncated"),
        says("file-damaged", "mmap", r"mmap length is greater than file size|cannot mmap an empty file"),
        says("file-mapped", "mmap|memmap|mapped", r"\bm(?:em)?map\(|\bnp\.memmap|open_memmap|\bmemmap\.py\b|mmap_mode ?=|\bmemory-?mapped"),
        says("file-damaged", "central directory|pytorchstreamreader", r"failed (?:finding|reading) central directory|PytorchStreamReader failed"),
        says("file-damaged", "unexpected eof", r"unexpected EOF,? .{0,60}(?:corrupt|more bytes)|unexpected EOF while reading"),
        says("file-damaged", "badzipfile|zip file", r"BadZipFile|not a zip file"),
        says("file-damaged", "end-of-stream", r"ended before the end-of-stream marker"),
        says("file-damaged", "parquet", r"Parquet magic bytes not found|Parquet file size is \d{1,12} bytes|corrupt(?:ed)? parquet"),
        says("file-damaged", "identify image file", r"cannot identify image file"),
        says("file-damaged", "truncated|object header|signature|addr overflow", r"truncated file: eof|bad object header|file signature not found|addr overflow"),
        says("file-damaged", "metadata|header", r"incomplete metadata|InvalidHeaderDeserialization|MetadataIncompleteBuffer"),
        says("file-damaged", "stale|errno 116", r"Stale (?:NFS )?file handle|Errno 116"),
        says("file-damaged", "crc|checksum|corrupted record|datalosserror", r"CRC (?:check failed|-32|mismatch)|checksum mismatch|corrupted record|DataLossError"),
        says("file-damaged", "mdb_", r"MDB_(?:CORRUPTED|PAGE_NOTFOUND|INVALID)"),
        says("file-damaged", "unpicklingerror", r"UnpicklingError: (?:invalid load key|pickle data was truncated)"),
        says("file-damaged", "file|mapping", r"(?:file|mapping).{0,40}(?:was truncated|shrank|got smaller|changed (?:size|while))"),
    ),
    _no_space,
)  # fmt: skip
