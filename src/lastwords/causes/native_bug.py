"""Native code failed, in a way that is not known more closely.

The process died of a signal that only native code causes: a bad memory access, a bad instruction, impossible
arithmetic, or a call of abort(). This cause is the honest answer when no closer one fits; it still names the
function, the library and the Python line, so that there is a place to look.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import PLACE_KNOWN, Cause, Facts, Reason, Step
from lastwords.causes.words import (
    ended,
    met_signal,
    native_steps,
    place,
    place_first,
    sent_by,
    signal_meaning,
)
from lastwords.evidence import signals
from lastwords.evidence.frames import blamed
from lastwords.evidence.model import Evidence


def judge(evidence: Evidence) -> Iterator[Reason]:
    signal = met_signal(evidence)
    if signal is None or signals.family_of(signal) not in ("fault", "abort"):
        yield Reason("no_fault", f"{ended(evidence)}, and no native fault was recorded")
        return
    yield Reason("native_fault", f"{signal_meaning(signal)} comes from native code")
    if signal != "SIGABRT":
        yield from sent_by(evidence)
    if blamed(evidence) is not None:
        yield Reason(PLACE_KNOWN, f"it happened in {place(evidence)}")
    if evidence.fault is None:
        yield Reason("not_recorded", "nothing recorded the fault: a closer cause could not be seen")
    if evidence.fault is not None and evidence.fault.abort_message:
        yield Reason("last_message", f"its last message was: {evidence.fault.abort_message.strip()[:200]}")


def sentence(evidence: Evidence) -> str:
    signal = met_signal(evidence)
    if blamed(evidence) is None:
        return f"Native code failed with {signal}; where is not known."
    return f"{place_first(evidence)} failed with {signal}; why is not known more closely."


def facts(evidence: Evidence) -> Facts:
    frame, fault = blamed(evidence), evidence.fault
    return {
        "signal": met_signal(evidence),
        "code": fault.code_name if fault else None,
        "function": frame.function if frame else None,
        "library": frame.library if frame else None,
        "abort_message": fault.abort_message if fault else None,
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    if evidence.fault is None:
        yield Step(text="have it recorded next time:", command="lastwords run -- python YOUR_JOB.py")
        return
    yield from native_steps(evidence)


CAUSE = Cause(
    id="native-bug",
    title="Native code failed",
    doc=__doc__,
    needs=("fault", "native_stack"),
    prior=-3.0,
    weights={
        "native_fault": 3.2,
        "not_recorded": -0.6,
        PLACE_KNOWN: 0.8,
        "last_message": 0.3,
        "sent": -4.0,
        "no_fault": -8.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("abort", "integer-division"),
    near_misses=("null-dereference", "python-exception"),
    fallback=1,
)
