"""Allocations that failed, and programs that speak of their memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.evidence.model import Mention
from lastwords.evidence.text.excerpt import Excerpt
from lastwords.evidence.text.hedges import PAGING_FILE, SUSPECTED
from lastwords.evidence.text.reader import Reader, mention, says

NOTHING_LEFT = 0.01
"""The part of the machine's memory below which the next allocation may be the one that kills."""
NEAR = 6
_TOTAL = re.compile(r"\bMem ?:\s{0,20}([\d.]{1,16})k?[ +]total|\bMemTotal:\s{1,20}(\d{1,16})")
_AVAILABLE = re.compile(r"([\d.]{1,16})[ +]avail Mem|\bMemAvailable:\s{1,20}(\d{1,16})")
_FREE = re.compile(r"^\s{0,8}Mem:((?:\s{1,20}[\d.]{1,16}[KMGTi]{0,2}B?){6})\s{0,8}$")


def _used_up(excerpt: Excerpt) -> Iterator[Mention]:
    """`top`, `free` and /proc/meminfo beside a death."""
    for index in excerpt.with_needle("mem", 40):
        part = _available_part(excerpt, index)
        if part is not None and part <= NOTHING_LEFT:
            yield mention("memory-used-up", excerpt, index, "memory", {"by": "the machine's own account"})
            return


def _available_part(excerpt: Excerpt, index: int) -> float | None:
    text = excerpt.lines[index].text
    columns = _FREE.search(text)
    if columns:
        units = columns[1].split()
        # With units (`free -h`) they may differ, and then nothing is claimed.
        return _share(units[-1], units[0]) if all(one.replace(".", "").isdigit() for one in units) else None
    total = _TOTAL.search(text)
    if total is None:
        return None
    below = (line.text for line in excerpt.lines[index : index + NEAR])
    found = next(filter(None, map(_AVAILABLE.search, below)), None)
    return _share(found[1] or found[2], total[1] or total[2]) if found else None


def _share(part: str, whole: str) -> float | None:
    try:
        return float(part) / float(whole)
    except (ValueError, ZeroDivisionError):
        return None


READER = Reader(
    "memory",
    (
        says("allocation-failed", "memoryerror", r"\b(?:_Array)?MemoryError\b", by="Python"),
        says("allocation-failed", "unable to allocate", r"Unable to allocate (?P<size>[\d.]{1,12} [KMGT]i?B)", by="NumPy"),
        says("allocation-failed", "cannot allocate memory", r"Cannot allocate memory", unless=r"unable to mmap|mapping file failed|static TLS", by="the system"),
        # ENOMEM from mmap(2) is also what a process with too many mappings gets (vm.max_map_count).
        says("map-refused", "cannot allocate memory", r"(?:unable to mmap|mapping file failed).{1,200}Cannot allocate memory"),
        says("allocation-failed", "errno 12", r"\[Errno 12\]", by="the system"),
        says("allocation-failed", "defaultcpuallocator", r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)", by="torch"),
        says("allocation-failed", "not enough memory", r"not enough memory: you tried to allocate (?P<size>\d{1,20})", by="torch"),
        says("allocation-failed", "failed to allocate", r"failed to allocate (?P<size>[\d.]{1,16} ?\w{0,5}).{0,20}(?:memory|bytes)", by="the program"),
        says("allocation-failed", "memory allocation", r"memory allocation of (?P<size>\d{1,20}) bytes failed", by="Rust"),
        says("allocation-failed", "arrowmemoryerror|arrow|of size", r"ArrowMemoryError|arrow.{0,40}out of memory|realloc of size \d{1,20} failed|malloc of size \d{1,20} failed", by="Arrow"),
        says("allocation-failed", "outofmemoryerror", r"java\.lang\.OutOfMemoryError: (?P<what>Java heap space|GC overhead|Direct buffer|unable to create)", by="the JVM"),
        says("allocation-failed", "insufficient memory", r"insufficient memory for the Java Runtime|OpenCV.{0,80}Insufficient memory", by="the JVM or OpenCV"),
        says("allocation-failed", "outofmemoryerror", r"\b\w{0,40}OutOfMemoryError\b", unless=r"torch|cuda|cupy|hip|xpu|java\.|GPU", by="the program"),
        says("allocation-failed", "out of memory", r"(?:error|failed|failure|exception)\b\W{1,3}.{0,40}\bout of memory\b|out of memory (?:allocating|error)", unless=r"GPU|CUDA|HIP|VRAM|cudnn|device|RESOURCE[_ ]EXHAUSTED|kill|perhaps|possib|\bmay\b|might|could|shared memory|\bif\b", by="the program"),
        says("memory-limit", "of the memory", r"more than \d{1,3}(?:\.\d)? ?% of the memory .{0,80}\bis used", by="a monitor of the node"),
        says("allocation-failed", "paging file|winerror 1455|auslagerungsdatei|页面文件|頁面檔|fichier de pagination|archivo de paginación|arquivo de paginação|файл подкачки|ページング", PAGING_FILE, by="Windows"),
        says("memory-limit", "memory limit", r"(?:exceed|over|above|reach|hit|beyond).{0,50}memory limit|memory limit.{0,40}(?:exceed|reach)", by="a limit"),
        says("memory-limit", "memory|vmem|rss", r"(?:exceed(?:ed|ing|s)|over) (?:the )?(?:job |its |requested |allocated |physical |virtual )?(?:memory|vmem|rss)\b", by="a limit"),
        says("memory-limit", "mem", r"TERM_MEMLIMIT|job killed: mem \d|mem \w{1,12} exceeded limit|exceeded the memory|vmem \w{1,12} exceeded limit", by="the batch system"),
        says("memory-limit", "memory|oom", r"killed (?:by|due to|because of|for)[\w /()]{0,40}(?:memory pressure|low memory|memory usage|out of memory|\bOOM\b)", unless="potential|possibl|might|could|perhaps", by="a supervisor"),
        says("memory-limit", "memory usage exceed|request_memory", r"memory usage exceed|exceed\w{0,3} request_memory", by="the scheduler"),
        says("memory-limit", "oom event", r"\bOOM event\b", by="the container's runtime"),
        says("allocation-failed", "bad_alloc|bad allocation", r"(?:Error|Exception|Fatal)\W{1,3}.{0,80}(?:bad_alloc|bad allocation)", by="C++"),
        says("memory-limit", "more memory than", r"(?:allocat|us|need|consum|request)(?:e|ed|es|ing|s)? more memory than\b", by="a limit"),
        says("allocation-failed", "memory allocation", r"\bmemory allocation\b.{0,30}\bfail", unless=r"GPU|CUDA|HIP|device", by="the program"),
        says("memory-limit", "oom", r"\bOOM[ -]?kill(?:ed|er)?\b", unless=r"potential|possibl|might|could|perhaps|OOMKilled[\"': =]{1,4}false", by="somebody who said OOM"),
        says("memory-guess", "memory", r"perhaps out of memory|(?:may|might|could|probably|likely|possibl[ye]|potential).{0,100}(?:\bmemory\b|\bOOM\b)", unless="shared memory|killed by the cgroup", by="a guess"),
        says("memory-guess", "oom", r"(?:may|might|could|probably|likely|possibl[ye]|potential).{0,80}\bOOM\b", by="a guess"),
        says("memory-guess", "excessive memory", by="a guess"),
        says("memory-high", "memory use is high", by="Dask"),
        says("memory-high", "内存", r"内存.{0,12}(?:爆|耗尽|占满|用完|不足|溢出)", by="somebody who watched it"),
        says("memory-high", "memory", r"memory (?:usage|use|utili[sz]ation)[ :=(]{1,3}(?:is )?(?:at )?(?:9\d|100)(?:\.\d{1,3})? ?%", by="the program"),
        says("memory-high", "mem|ram", r"\b(?:mem(?:ory)?|ram)\b.{0,60}\b(?:9[5-9]|100)(?:\.\d{1,3})? ?%", unless=r"GPU|CUDA|VRAM|shared", by="the program"),
        says("allocation-failed", "oom when allocating", r"OOM when allocating tensor.{0,160}(?:device:CPU|allocator (?:mkl)?cpu)", by="TensorFlow"),
        says("memory-high", "mem", r"(?:only|remaining|left)[ :]{1,2}\d{1,4} ?(?:MB|MiB) (?:of )?(?:free |available )?memory|available memory.{0,20}\b[0-4](?:\.\d)? ?%", by="the program"),
        says("memory-growth", "memory leak", r"(?:possible|detected|potential|suspected|is a|has a)?.{0,20}memory leak", unless=rf"can be caused by|{SUSPECTED}|\b(?:fix|no)\w{{0,4}} (?:a |the )?memory leak", by="the program"),
        says("memory-growth", "rss", r"\brss\b.{0,40}(?:grew|growing|increas(?:ed|ing)|keeps? (?:growing|climbing|rising))", by="the program"),
        says("memory-growth", "memory", r"memory (?:usage )?(?:keeps |is |has been )?(?:constantly |steadily |continuously |slowly )?(?:grow|climb|increas|rising|creep)\w{0,5}", by="the program"),
        says("memory-growth", "max_memory_per_child", unless=r"max_memory_per_child[\"' ]{0,2}[=:]", by="Celery"),
    ),
    _used_up,
)  # fmt: skip
