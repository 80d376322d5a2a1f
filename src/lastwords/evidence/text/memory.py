"""Allocations that failed, and programs that speak of their memory."""

from __future__ import annotations

from lastwords.evidence.text.reader import Reader, says

READER = Reader(
    "memory",
    (
        says("allocation-failed", "memoryerror", r"\b(?:_Array)?MemoryError\b", by="Python"),
        says("allocation-failed", "unable to allocate", r"Unable to allocate (?P<size>[\d.]{1,12} [KMGT]i?B)", by="NumPy"),
        says("allocation-failed", "cannot allocate memory", r"(?:Errno 12|Cannot allocate memory)", by="the system"),
        says("allocation-failed", "errno 12", r"\[Errno 12\]", by="the system"),
        says("allocation-failed", "defaultcpuallocator", r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)", by="torch"),
        says("allocation-failed", "not enough memory", r"not enough memory: you tried to allocate (?P<size>\d{1,20})", by="torch"),
        says("allocation-failed", "failed to allocate", r"failed to allocate (?P<size>[\d.]{1,16} ?\w{0,5}).{0,20}(?:memory|bytes)", by="the program"),
        says("allocation-failed", "memory allocation", r"memory allocation of (?P<size>\d{1,20}) bytes failed", by="Rust"),
        says("allocation-failed", "arrowmemoryerror|arrow|of size", r"ArrowMemoryError|arrow.{0,40}out of memory|realloc of size \d{1,20} failed|malloc of size \d{1,20} failed", by="Arrow"),
        says("allocation-failed", "outofmemoryerror", r"java\.lang\.OutOfMemoryError: (?P<what>Java heap space|GC overhead|Direct buffer|unable to create)", by="the JVM"),
        says("allocation-failed", "insufficient memory", r"insufficient memory for the Java Runtime|OpenCV.{0,80}Insufficient memory", by="the JVM or OpenCV"),
        says("allocation-failed", "outofmemoryerror", r"\b\w{0,40}OutOfMemoryError\b", unless=r"torch|cuda|cupy|hip|xpu|java\.|GPU", by="the program"),
        says("allocation-failed", "out of memory", r"(?:error|failed|failure|exception)\b\W{1,3}.{0,40}\bout of memory\b|out of memory (?:allocating|error)", unless=r"GPU|CUDA|HIP|VRAM|cudnn|device|kill|perhaps|possib|\bmay\b|might|could|shared memory|\bif\b", by="the program"),
        says("memory-limit", "of the memory", r"more than \d{1,3}(?:\.\d)? ?% of the memory .{0,80}\bis used", by="a monitor of the node"),
        says("allocation-failed", "paging file|winerror 1455", r"WinError 1455|paging file is too small", by="Windows"),
        says("memory-limit", "memory limit", r"(?:exceed|over|above|reach|hit|beyond).{0,50}memory limit|memory limit.{0,40}(?:exceed|reach)", by="a limit"),
        says("memory-limit", "memory", r"(?:exceed(?:ed|ing|s)|over) (?:the )?(?:job |its |requested |allocated |physical |virtual )?(?:memory|vmem|rss)\b", by="a limit"),
        says("memory-limit", "mem", r"TERM_MEMLIMIT|job killed: mem \d|mem \w{1,12} exceeded limit|exceeded the memory|vmem \w{1,12} exceeded limit", by="the batch system"),
        says("memory-limit", "memory", r"killed (?:by|due to|because of|for)[\w /()]{0,40}(?:memory pressure|low memory|memory usage|out of memory|\bOOM\b)", unless="potential|possibl|might|could|perhaps", by="a supervisor"),
        says("memory-limit", "memory usage exceed|request_memory", r"memory usage exceed|exceed\w{0,3} request_memory", by="the scheduler"),
        says("memory-limit", "oom event", r"\bOOM event\b", by="the container's runtime"),
        says("allocation-failed", "bad_alloc", r"(?:Error|Exception): .{0,80}bad_alloc", by="C++"),
        says("memory-limit", "oom", r"\bOOM[ -]?kill(?:ed|er)?\b", unless=r"potential|possibl|might|could|perhaps|OOMKilled[\"': =]{1,4}false", by="somebody who said OOM"),
        says("memory-guess", "memory", r"perhaps out of memory|(?:may|might|could|probably|likely|possibl[ye]|potential).{0,100}(?:\bmemory\b|\bOOM\b)", unless="shared memory|killed by the cgroup", by="a guess"),
        says("memory-guess", "oom", r"(?:may|might|could|probably|likely|possibl[ye]|potential).{0,80}\bOOM\b", by="a guess"),
        says("memory-guess", "excessive memory", by="a guess"),
        says("memory-high", "memory use is high", by="Dask"),
        says("memory-high", "memory", r"memory (?:usage|use|utili[sz]ation)[ :=(]{1,3}(?:is )?(?:at )?(?:9\d|100)(?:\.\d{1,3})? ?%", by="the program"),
        says("memory-high", "mem", r"(?:only|remaining|left)[ :]{1,2}\d{1,4} ?(?:MB|MiB) (?:of )?(?:free |available )?memory|available memory.{0,20}\b[0-4](?:\.\d)? ?%", by="the program"),
        says("memory-growth", "memory leak", r"(?:possible|detected|potential|suspected|is a|has a)?.{0,20}memory leak", by="the program"),
        says("memory-growth", "rss", r"\brss\b.{0,40}(?:grew|growing|increas(?:ed|ing)|keeps? (?:growing|climbing|rising))", by="the program"),
        says("memory-growth", "memory", r"memory (?:usage )?(?:keeps |is |has been )?(?:constantly |steadily |continuously |slowly )?(?:grow|climb|increas|rising|creep)\w{0,5}", by="the program"),
        says("memory-growth", "max_memory_per_child", by="Celery"),
    ),
)  # fmt: skip
