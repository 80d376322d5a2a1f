"""How a process ended, as shells, subprocess, containers and pools print it: signals and exit codes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from lastwords.evidence import signals
from lastwords.evidence.model import Mention
from lastwords.evidence.text.excerpt import Excerpt
from lastwords.evidence.text.hedges import certain, is_setting
from lastwords.evidence.text.reader import Reader, mention

MOST = 200

# What a shell, torch or UCX calls a signal: the words of strsignal(3).
WORDS = {
    "segmentation fault": "SIGSEGV",
    "segfault encountered": "SIGSEGV",
    "caught segfault": "SIGSEGV",
    "segfaulted": "SIGSEGV",
    "address boundary error": "SIGSEGV",
    "illegal instruction": "SIGILL",
    "illegal hardware instruction": "SIGILL",
    "floating point exception": "SIGFPE",
    "arithmetic exception": "SIGFPE",
    "bad system call": "SIGSYS",
    "trace/breakpoint trap": "SIGTRAP",
    "trace or breakpoint trap": "SIGTRAP",
    "trace/bpt trap": "SIGTRAP",
}
# Not the bus of PCI Express, whose errors the kernel reports in the same words.
_BUS = re.compile(r"(?<!PCIe )(?<!PCI )\bBus error\b", re.IGNORECASE)
# `Killed`, `Aborted` and `Terminated` are ordinary words: only where a shell or torch says them.
_SAID = re.compile(
    r"(?:^|line \d{1,6}:\s{1,8}\d{1,10} |signal: |^\[\d{1,3}\]\s{1,6}\+?\s{0,6}\d{0,9} ?)"
    r"(Killed|Aborted|Abort trap: 6|Terminated|Hangup|CPU time limit exceeded)\b(?!:)(?=$|[.\s(])"
)
# Behind what a collector of logs puts in front, and then nothing else on the line.
_SAID_ALONE = re.compile(
    r"(?:[|\])>]|\d\d:\d\d:\d\d\S{0,12}) {1,3}(Killed|Aborted|Terminated)(?: \(core dumped\))?\s{0,4}$"
)
_SAID_SIGNALS = {
    "killed": "SIGKILL",
    "aborted": "SIGABRT",
    "abort trap: 6": "SIGABRT",
    "terminated": "SIGTERM",
    "hangup": "SIGHUP",
    "cpu time limit exceeded": "SIGXCPU",
}
_NUMBER = re.compile(
    r"(?:killed|terminated|died|exited|interrupted|crashed|caught|received|due to|with|by|from|on)"
    r"[^\n]{0,40}?\bsignal[ :=#(]{1,3}(\d{1,2})\b|\bsignal[ :=]{1,3}(\d{1,2}) \(?(?:SIG|[A-Z]{2,5}\))",
    re.IGNORECASE,
)
_NAME = re.compile(
    r"\b(?:Signals\.|Negsignal\.)?(SIG(?:SEGV|KILL|ILL|BUS|FPE|ABRT|SYS|TRAP|XCPU|XFSZ|QUIT))\b"
)
# SGE leaves the first letters out: `died through signal KILL (9)`.
_SHORT_NAME = re.compile(r"\bsignal\s{0,8}[=:]?\s{0,4}(SEGV|KILL|ILL|BUS|FPE|ABRT|SYS|XCPU|TERM)\b")
# And its letters of the end of a job: `Job 4711 (fit) Aborted`, whatever it ended of.
_LETTER = re.compile(r"\bJob \S{1,20} \(.{1,80}\) (?:Aborted|Killed)\s{0,4}$")
# What macOS calls them, in a debugger and in its crash reports.
_MACH = re.compile(r"\bEXC_(BAD_ACCESS|BAD_INSTRUCTION|ARITHMETIC|BREAKPOINT)\b")
_MACH_SIGNALS = {
    "BAD_ACCESS": "SIGSEGV",
    "BAD_INSTRUCTION": "SIGILL",
    "ARITHMETIC": "SIGFPE",
    "BREAKPOINT": "SIGTRAP",
}
# systemd: `Main process exited, code=dumped, status=4/ILL`.
_SYSTEMD = re.compile(r"\bcode=(?:killed|dumped),? status=\d{1,3}/(SIG)?([A-Z]{2,6}\d?)\b")
_CODE = re.compile(
    r"(?:exit(?:ed|s|ing)?[ _-]?(?:unexpectedly )?(?:with )?(?:a )?(?:non-zero )?(?:exit )?(?:code|status)"
    r"|exitcode|return(?:ed)?(?: a non-zero)?(?: with)?(?: exit)? ?code|returncode|exited with|exit value"
    r"|returned non-zero exit status|non-zero code|status code|StatusCode|\[WinError)"
    r"(?: is| was| of)?[\"']?[ :=(]{1,8}(-?\d{1,12}|0x[0-9a-f]{8})\b"
    # `worker died (-9)`, `Failed core proc(s): {'EngineCore': -11}`: only a negative number is an ending by itself.
    r"|(?:died|exited|failed|crashed|terminated|gone|dead) \((-\d{1,2})\)|\bproc(?:ess|esses|s|\(s\))?: \{[^{}]{0,80}?: (-\d{1,2})\b",
    re.IGNORECASE,
)
# RQ prints what waitpid(2) gave, undecoded.
_WAITED = re.compile(r"waitpid returned (\d{1,5})\b")
_HEX = re.compile(r"\b0x([c4][0-9a-f]{7})\b", re.IGNORECASE)

NTSTATUS = {
    0xC0000005: "SIGSEGV",  # access violation
    0xC000001D: "SIGILL",
    0xC0000094: "SIGFPE",  # integer division by zero
    0xC00000FD: "SIGSEGV",  # stack overflow
    0xC0000374: "SIGABRT",  # heap corruption
    0xC0000409: "SIGABRT",  # stack buffer overrun, and any abort() of the C runtime
    0xC000013A: "SIGINT",
    0x40000015: "SIGABRT",
}
NTSTATUS_KINDS = {
    0xC00000FD: "stack-overflow",
    0xC0000374: "heap-corruption",
    0xC0000135: "library-missing",
    0xC0000139: "symbol-missing",
    0xC000007B: "wrong-machine",
    0xC0000142: "library-missing",
}
# Plans, switches and advice have the words too, and nobody died of them.
_NO_END = re.compile(
    r"\bif\b|could be|might be|may be|possib|potential|root causes|closing signal|sending|will be|\bset "
    r"|ignor|handler for|trap '|propagat|forward|sigaction\(|sigprocmask\(|signal\.signal\(",
    re.IGNORECASE,
)
_SURE = re.compile(
    r"is killed by signal|encountered in worker|was killed by signal|died with <Signals", re.IGNORECASE
)
_NEEDLES = ("signal", "sig", "exit", "return", "code", "fault", "bus error", "illegal", "killed", "aborted",
            "exception", "0xc", "terminated", "hangup", "cpu time limit", "boundary", "trap", "abort", "exc_", "waitpid", "segfault", "died (", "proc", "winerror -")  # fmt: skip


def read(excerpt: Excerpt) -> Iterator[Mention]:
    wanted = sorted({index for needle in _NEEDLES for index in excerpt.with_needle(needle, MOST)})
    for index in wanted:
        yield from _line(excerpt, index)


def _line(excerpt: Excerpt, index: int) -> Iterator[Mention]:
    text = excerpt.lines[index].text
    stated = _stated(text, excerpt.lines[index - 1].text if index else "")
    name = _signal(stated) if stated else None
    if name is not None:
        yield mention("signal", excerpt, index, "process", {"signal": name, **_pid(text)})
    if stated:
        yield from _codes(excerpt, index, stated, known=name is not None)
        yield from _waited(excerpt, index)


def _stated(text: str, above: str) -> str:
    """The part of the line that says how something ended, and is no plan and no guess."""
    if _SURE.search(text):
        return text
    if is_setting(text, len(text) - 1) or _LETTER.search(text):
        return ""
    stated = certain(text, above)
    return "" if _NO_END.search(stated) else stated


def _waited(excerpt: Excerpt, index: int) -> Iterator[Mention]:
    found = _WAITED.search(excerpt.lines[index].text)
    if found is None:
        return
    status = int(found[1])
    if os.WIFSIGNALED(status):
        yield mention("signal", excerpt, index, "process", {"signal": signals.name_of(os.WTERMSIG(status))})
    elif os.WIFEXITED(status):
        yield mention("exit", excerpt, index, "process", {"code": str(os.WEXITSTATUS(status))})


def _signal(text: str) -> str | None:
    lower = text.lower()
    word = next((name for words, name in WORDS.items() if words in lower), None)
    if word is None and _BUS.search(text):
        word = "SIGBUS"
    if word is not None and "fatal python error" not in lower:
        return word
    said = _SAID.search(text) or _SAID_ALONE.search(text)
    if said:
        return _SAID_SIGNALS[said[1].lower()]
    named = _NAME.search(text)
    if named:
        return named[1]
    short = _SHORT_NAME.search(text)
    if short:
        return f"SIG{short[1]}"
    mach = _MACH.search(text)
    if mach:
        return _MACH_SIGNALS[mach[1]]
    unit = _SYSTEMD.search(text)
    if unit:
        return f"SIG{unit[2]}"
    number = _NUMBER.search(text)
    return signals.name_of(int(number[1] or number[2])) if number else None


def _codes(excerpt: Excerpt, index: int, text: str, *, known: bool) -> Iterator[Mention]:
    found = _CODE.search(text) or _HEX.search(text)
    if found is None:
        return
    value = next(filter(None, found.groups()))
    code = int(value, 16) if found.re is _HEX or value.lower().startswith("0x") else int(value)
    status = code & 0xFFFFFFFF
    if status in NTSTATUS_KINDS:
        yield mention(NTSTATUS_KINDS[status], excerpt, index, "windows", {"code": f"{status:#010X}"})
    if status in NTSTATUS:
        yield mention("signal", excerpt, index, "windows", {"signal": NTSTATUS[status]})
    elif not known and found.re is _CODE and abs(code) < 1000:
        yield from _exit(excerpt, index, code)


def _exit(excerpt: Excerpt, index: int, code: int) -> Iterator[Mention]:
    number = -code if code < 0 else code - 128
    if (code < 0 or code > 128) and 1 <= number <= 31:
        fields = {"signal": signals.name_of(number), **_pid(excerpt.lines[index].text)}
        yield mention("signal", excerpt, index, "process", fields)
    else:
        yield mention("exit", excerpt, index, "process", {"code": str(code)})


_PID = re.compile(r"\bpid(?:\(s\))?[:= ]{1,2}(\d{1,9})|line \d{1,6}:\s{1,8}(\d{1,9}) ", re.IGNORECASE)


def _pid(text: str) -> dict[str, str]:
    found = _PID.search(text)
    return {"pid": found[1] or found[2]} if found else {}


READER = Reader("process", read=read)
