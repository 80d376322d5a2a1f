"""Words of which every message that the readers know has at least one: the first and coarsest sieve.

They are written without digits, in the case in which programs print them, and begin with a capital or with a letter
that is rare in prose ("bort" is in Abort and in abort): the search then passes over ordinary text quickly. Where text
is short it is not used. tests/evidence/test_text_excerpt.py holds the readers to it.
"""

# ruff: noqa: S108 (paths to recognise in a text; nothing is written there)

from __future__ import annotations

import re

from lastwords._native import Alarms

WORDS = (
    # how processes end
    "kill", "Kill", "KILL", "SIG", "xited", "xit code", "xit status", "xitcode", "xitCode", "xit Code", "ExitCode",
    "gnal", "ker died", "process died", "process ter", "inate called", "bort", "ABORT", "Segm", "gmentation f", "gfault", "Bus ", "bus err", "Illegal",
    "gal ins", "gal mem", "gal hard", "ILLEGAL", "Floating", "Terminated", "Hangup", "xpectedly", "bruptly", "pawn",
    "CANCEL", "Out Of", "Crash", "Kernel cr", "KernelR", "ped)", "DAMN", "Worker (", "DEAD", "Dead", "zero code", "Aborted",
    # errors by name
    "Error", "Errno", "xception", "xceed", "Fatal", "FATAL", "fatal", "Traceback", "File \"", "CRITICAL", "Assert",
    "panic", "RAW: ", "SystemExit", "n-broken", "failed (", "Failed", "FAIL", "Unable to", "ble to ", "what()", "Check failed", "protection",
    # memory
    "f memory", "OOM", "bad_alloc", "y allocation", "y limit", "y pressure", "y leak", "y budget", "y usage",
    "y use ", "pted ", "ption (", "ption:", "CORRUPT", "ble free", "valid pointer", "valid size", "valid next",
    "k smash", "verflow", "__libc_m", "Sanitizer", "Java heap", "growing", "grew", "w on resource", "OUT_OF", "freed", "Memory f",
    # time, place, limits
    "Timeout", "TIMEOUT", "Timed out", "TIME LIMIT", "preempt", "Preempt", "PREEMPT", "walltime", "blocked for",
    "y open", "failed or", "failed to boot", "Process timed", "Task timed", "Worker timed", "Job not req", "Pod was", "list corrupt", "pace left", "/dev/shm", "(shm)", "quota", "w thread", "vailable", "pthread", "Bad system", "yscall",
    "Stale", "ponsive", "ponding", "% full", "I/O", "ENOSPC", "EMFILE", "ption notice", "Spot ", "vict", "Evict",
    "xternal", "HARAKIRI", "voked", "qdel", "probe", "watchdog", "Watchdog", "TERM_", "beat", "ft lockup",
    "versubscri", "progress for", "k full", "k is full", "k quota", "k space", "k pressure", "Disk", "Shutdown",
    "verload", "lost c", "Lost c", "been run", "been wait", "still wait", "s inside a block", "Stopping", "Parent", "parent p", "parent c", "parent d", "fork", "gone", "k_wait", "y stuck", "Power key",
    # libraries and versions
    "No module", "found", "Cannot ", "pen shared", "fined symbol", "Symbol not", "ELF", "xec format", "patible",
    "Library not", "DLL", "piled", "Python in worker", "OMP:", "MKL", "gic number", "version mis", "Mismatch",
    "gistered", "AVX", "valid opcode", "baseline", "Missing req", "JAVA_", "No package", "platform (", "g manifest",
    "quired", "Could not", "Couldn", "binary", "TLS block", "ver on your", "platform.",
    # GPUs and collectives
    "CUDA e", "CUDA o", "CUDA_E", "CUDA d", "CUDA c", "Xid", "NCCL WARN", "ECC", "EDAC", "Machine check",
    "Machine Check", "Hardware", "ware err", "ware mem", "NVRM", "AER:", "PCIe", "HIP ", "CUDNN_", "CUBLAS_",
    "fallen off", "based barrier", "bset of", "GPU is", "y access fault", "xhaust", "XHAUST", "Barrier", "NVLink",
    "Stalled", "WorkNCCL", "rocBLAS",
    # macOS, and what a loader passes on
    "EXC_", "KERN_", "Caught ", "Version mis", "Host EC", "ient memory", "throttled",
    # Python and networks
    "pickl", "Pickl", "PICKL", "bootstrapping", "freeze_support", "Connection", "Disconnect", "Broken", "broken",
    "ged size", "Interrupt", "fused", "borrowed", "bad record", "f sync", "ynchronization with", "fferent process",
    "PGRES", "CRC", "Max retries", "No route", "Network", "peer", "Gateway", "Service Un", "zable", "BUG:", "StatusCode", "Socket c", "Raylet",
    "garbage", "Garbage",
)  # fmt: skip


def _grouped(words: tuple[str, ...]) -> str:
    """By first letter: one look at a letter then rules all the words out that begin otherwise."""
    groups: dict[str, list[str]] = {}
    for word in words:
        groups.setdefault(word[0], []).append(re.escape(word[1:]))
    return "|".join(f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in groups.items())


# Two searches, each with few first letters, are faster than one with all of them.
ALARMS = tuple(
    re.compile(_grouped(tuple(word for word in WORDS if word[0].isupper() == upper)).encode())
    for upper in (True, False)
)

FINDER = Alarms([word.encode() for word in WORDS])
"""Finds the lines that have one of them, at hundreds of megabytes a second."""
