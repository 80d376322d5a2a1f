"""Native code failed, in a way that is not known more closely.

The process died of a signal that only native code causes: a bad memory access, a bad instruction, impossible
arithmetic, or a call of abort(). This cause is the honest answer when no closer one fits; it still names the
function, the library and the Python line, so that there is a place to look.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.causes.cause import PLACE_KNOWN, Cause, Facts, Reason, Step
from lastwords.causes.mentioned import from_text, only_lost, said
from lastwords.causes.words import (
    ended,
    met_signal,
    native_steps,
    place,
    place_facts,
    place_first,
    sent_by,
    signal_meaning,
)
from lastwords.evidence import signals
from lastwords.evidence.frames import blamed
from lastwords.evidence.model import Evidence

ALIGNMENT = 16
ALIGNED = (
    "movaps",
    "movapd",
    "movdqa",
    "vmovaps",
    "vmovapd",
    "vmovdqa",
    "movntps",
    "movntdq",
    "addps",
    "mulps",
)


def judge(evidence: Evidence) -> Iterator[Reason]:
    signal = met_signal(evidence)
    if signal is None and only_lost(evidence):
        yield Reason("worker_lost", "a worker vanished without a word, as it does when native code fails")
        return
    if signal is None or signals.family_of(signal) not in ("fault", "abort"):
        yield Reason("no_fault", f"{ended(evidence)}, and no native fault was recorded")
        return
    yield Reason("native_fault", f"{signal_meaning(signal)} comes from native code")
    if signal != "SIGABRT":
        yield from sent_by(evidence)
    if blamed(evidence) is not None and not (from_text(evidence) and evidence.fault is None):
        yield Reason(PLACE_KNOWN, f"it happened in {place(evidence)}")
    elif signal == "SIGSEGV" and (named := _named(evidence)) is not None:
        yield Reason("place_named", f"the stack in the log names {named}")
    if (address := misaligned(evidence)) is not None:
        yield Reason(
            "misaligned", f"{_text(evidence)}  takes only multiples of {ALIGNMENT}, and {address:#x} is none"
        )
    if evidence.fault is None:
        yield Reason("not_recorded", "nothing recorded the fault: a closer cause could not be seen")
    if evidence.fault is not None and evidence.fault.abort_message:
        yield Reason("last_message", f"its last message was: {evidence.fault.abort_message.strip()[:200]}")


# Who printed the stack stands on it, and so do Python's own functions, whoever is to blame.
_NOT_THE_PLACE = re.compile(
    r"^(?:_?Py|py|uwsgi_(?:backtrace|segfault)|absl|google|ray::(?:Sigaction|Terminate)|folly|c10::|raise|abort|main$|_start|clone|start_thread|unknown)"
)


def _named(evidence: Evidence) -> str | None:
    """The first function of native code that a log's stack names."""
    if not from_text(evidence):
        return None
    names = (one.fields.get("function", "") for one in said(evidence, "native-frame"))
    return next((name for name in names if name and not _NOT_THE_PLACE.match(name)), None)


def misaligned(evidence: Evidence) -> int | None:
    """The odd address of a vector instruction that takes only even ones: the kernel gives no reason for it."""
    fault, found = evidence.fault, evidence.instruction
    if (
        fault is None
        or found is None
        or fault.code_name != "SI_KERNEL"
        or not found.mnemonic.startswith(ALIGNED)
    ):
        return None
    odd = (one.address for one in found.memory if one.address is not None and one.address % ALIGNMENT)
    return next(odd, None)


def _text(evidence: Evidence) -> str:
    return evidence.instruction.text if evidence.instruction else ""


def sentence(evidence: Evidence) -> str:
    signal = met_signal(evidence)
    if signal is None:
        return "Native code may have failed; nobody saw how it ended."
    if misaligned(evidence) is not None:
        return f"{place_first(evidence)} used a vector instruction on an address that is not aligned for it."
    if blamed(evidence) is None and (named := _named(evidence)) is not None:
        return f"Native code failed with {signal}, near {named}; why is not known more closely."
    if blamed(evidence) is None:
        return f"Native code failed with {signal}; where is not known."
    return f"{place_first(evidence)} failed with {signal}; why is not known more closely."


def facts(evidence: Evidence) -> Facts:
    fault = evidence.fault
    return {
        "signal": met_signal(evidence),
        "code": fault.code_name if fault else None,
        **place_facts(evidence),
        "abort_message": fault.abort_message if fault else None,
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    if evidence.fault is None:
        yield Step(text="have it recorded next time:", command="lastwords run -- python YOUR_JOB.py")
        return
    if misaligned(evidence) is not None:
        yield Step(text="pass it memory aligned to 16 bytes or more, or rebuild it with -fno-tree-vectorize")
    yield from native_steps(evidence)


CAUSE = Cause(
    id="native-bug",
    title="Native code failed",
    doc=__doc__,
    needs=("fault", "native_stack"),
    prior=-3.0,
    weights={
        "native_fault": 3.2,
        "worker_lost": 1.6,
        "not_recorded": -0.6,
        PLACE_KNOWN: 0.8,
        "place_named": 0.3,
        "last_message": 0.3,
        "misaligned": 1.5,
        "sent": -4.0,
        "no_fault": -8.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("misaligned-vector",),
    near_misses=("null-dereference", "python-exception", "abort", "integer-division"),
    fallback=1,
)
