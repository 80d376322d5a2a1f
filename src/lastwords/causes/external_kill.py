"""Somebody killed the process from outside.

SIGKILL, SIGTERM and their like are not faults: somebody asked the kernel to end this process. That may be a
person, a scheduler, a supervisor, the job itself while it cleans up, or the kernel when memory runs out. The
last one is a cause of its own, and lastwords asks the cgroup's counter of such kills before it says "not that".

Who sent SIGKILL leaves no trace in the dead process. The sender is known where it was a recorded process of the
same job, or where the signal was one that the crash handler saw arrive.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import first, from_text, only_lost, quoted, reason, said
from lastwords.causes.words import ended, signal_of, survived, was_sent
from lastwords.evidence import signals
from lastwords.evidence.model import Evidence, SentSignal


def judge(evidence: Evidence) -> Iterator[Reason]:
    signal, sender = signal_of(evidence), sender_of(evidence)
    ordered = list(_ordered(evidence))
    yield from ordered
    if ordered and signals.family_of(signal) != "kill":
        return
    if signals.family_of(signal) != "kill" and sender is None:
        yield Reason("no_kill", f"{ended(evidence)}, which is not how a kill looks")
        return
    if evidence.fault is not None and not was_sent(evidence) and not survived(evidence):
        yield Reason("crashed_before", f"its own code had met {evidence.fault.signal} before")
    if signals.family_of(signal) == "kill":
        yield Reason("killed", f"it was ended by {signal}, which is sent, never caused by a fault")
    if sender is not None and sender.is_for_memory:
        yield Reason(
            "for_its_memory", f"{_who(evidence, sender)} for its memory, which is a cause of its own"
        )
    elif sender is not None:
        yield Reason("sender_known", _who(evidence, sender))
    elif evidence.sent_signals is not None:
        yield Reason("not_from_the_job", "no recorded process of the job sent it")
    parent = evidence.parent_end
    if parent is not None and sender is None and parent.signal != signal:
        yield Reason("parent_died_first", f"its parent, pid {parent.pid}, had ended before it")
    yield from _judge_memory(evidence, signal, sender)


def _ordered(evidence: Evidence) -> Iterator[Reason]:
    """A log that says who told it to go."""
    yield from reason(evidence, "cancelled", "cancelled")
    if said(evidence, "cancelled") and said(evidence, "preempted", "time-limit"):
        yield from reason(evidence, "for_a_reason", "preempted", "time-limit")
    requests = said(evidence, "stop-request")
    if requests:
        yield quoted("told_to_stop", requests[0])
        if any(one.fields.get("decided") for one in requests):
            yield Reason("on_purpose", "and somebody had decided that it must end")
    elif only_lost(evidence):
        yield Reason("worker_lost", "a worker vanished without a word, as it does when it is killed")


def sender_of(evidence: Evidence) -> SentSignal | None:
    """Who sent the signal it died of, if anybody of the job noted it or the crash handler saw it arrive."""
    signal = signal_of(evidence)
    for sent in reversed(evidence.sent_signals or ()):
        if sent.signal == signal:
            return sent
    fault = evidence.fault
    if fault is None or fault.code > 0 or not fault.sender_pid or fault.signal != signal:
        return None
    if evidence.process is not None and fault.sender_pid == evidence.process.pid:
        return None  # raise() and abort(): its own doing
    return SentSignal(source=fault.source, signal=fault.signal, sender_pid=fault.sender_pid)


def _judge_memory(evidence: Evidence, signal: str | None, sender: SentSignal | None) -> Iterator[Reason]:
    """The kernel's own killer sends SIGKILL, and nothing else."""
    kills = evidence.oom_kills
    if kills is not None and kills.after > kills.before:
        yield Reason(
            "oom_kill_counted",
            f"the kernel killed for want of memory: oom_kill {kills.before} → {kills.after}",
        )
    elif sender is not None:
        return
    elif signal != "SIGKILL":
        yield Reason("not_the_oom_killer", f"when memory is out the kernel sends SIGKILL, not {signal}")
        if from_text(evidence) and not said(evidence, "stop-request", "cancelled"):
            yield Reason("nobody_named", "the log does not say who sent it, nor what for")
    elif kills is not None:
        yield Reason("no_oom_kill", f"memory was not the reason: oom_kill of its cgroup stayed {kills.after}")
    else:
        yield Reason("memory_unknown", "nothing was collected about memory, and its end would look the same")


def _who(evidence: Evidence, sender: SentSignal) -> str:
    where = f" ({sender.where})" if sender.where else ""
    return f"{sender.signal} was sent by {_name(evidence, sender)}{where}"


def _name(evidence: Evidence, sender: SentSignal) -> str:
    process = evidence.process
    if process is not None and sender.sender_pid == process.pid:
        return f"the process itself, pid {sender.sender_pid}"
    if process is not None and sender.sender_pid == process.parent:
        return f"its parent, pid {sender.sender_pid}"
    return (
        f"{sender.sender_role}, pid {sender.sender_pid}" if sender.sender_role else f"pid {sender.sender_pid}"
    )


def sentence(evidence: Evidence) -> str:
    signal, sender = signal_of(evidence), sender_of(evidence)
    if sender is not None:
        return f"{_who(evidence, sender)}."
    ordered = first(evidence, "cancelled", "stop-request")
    if ordered is not None:
        return f"It was told to stop, by {ordered.fields.get('by', ordered.system)}: see {ordered.source}."
    if signal is None:
        return "Somebody may have killed it; nobody saw how it ended."
    who = "Somebody outside its Python processes" if evidence.sent_signals is not None else "Somebody"
    if evidence.oom_kills is not None and evidence.oom_kills.after == evidence.oom_kills.before:
        return f"{who} sent {signal}; memory was not the reason."
    return f"{who} sent {signal}; who did is not known."


def facts(evidence: Evidence) -> Facts:
    sender = sender_of(evidence)
    return {
        "signal": signal_of(evidence),
        "sender_pid": sender.sender_pid if sender else None,
        "sender": _name(evidence, sender) if sender else None,
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    sender, process = sender_of(evidence), evidence.process
    if sender is not None and process is not None and sender.sender_pid == process.pid:
        command = r"grep -rnE '\b(os\.kill|signal\.raise_signal)\(' --include='*.py' ."
        yield Step(text="find where its own code sends it:", command=command)
        return
    if sender is not None:
        yield Step(
            text=f"ask why {_name(evidence, sender)} sent it"
            + (f": see {sender.where}" if sender.where else "")
        )
        if process is not None and sender.sender_pid == process.parent:
            yield Step(
                text="a pool ends its other workers when one dies: look for the first:",
                command="lastwords list",
            )
        return
    if signal_of(evidence) == "SIGHUP":
        yield Step(
            text="SIGHUP comes when the terminal or the connection goes: start it in tmux, or without a terminal:",
            command="nohup setsid YOUR_COMMAND > job.log 2>&1 &",
        )
        return
    if any(one.system == "airflow" for one in said(evidence, "stop-request")):
        yield Step(
            text="see who changed the task's state, and when: Browse → Audit Logs; the scheduler's log of that minute"
        )
        yield Step(
            text="two schedulers, a dagrun_timeout, a missed heartbeat and a worker that is scaled down do it too"
        )
        return
    pattern = f"-w {process.pid}" if process else "-iE 'killed process|out of memory'"
    yield Step(text="see whether the kernel noted it:", command=f"sudo dmesg -T | grep {pattern}")
    yield Step(
        text="ask who may: the scheduler's time or memory limit, `timeout`, a supervisor, a colleague (kill -9)"
    )


CAUSE = Cause(
    id="external-kill",
    title="Somebody killed the process from outside",
    doc=__doc__,
    needs=("status", "sent_signals", "oom_kills"),
    prior=-3.0,
    weights={
        "cancelled": 5.4,
        "told_to_stop": 4.0,
        "on_purpose": 1.5,
        "for_a_reason": -4.5,
        "worker_lost": 1.0,
        "killed": 3.0,
        "sender_known": 5.5,
        "not_from_the_job": 0.1,
        "no_oom_kill": 2.2,
        "not_the_oom_killer": 1.6,
        "nobody_named": -1.7,
        "memory_unknown": -0.8,
        "parent_died_first": -2.5,
        "for_its_memory": -2.5,
        "oom_kill_counted": -5.0,
        "crashed_before": -4.0,
        "no_kill": -8.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("killed-from-outside", "terminated-from-outside", "text:external-kill"),
    near_misses=("exit-in-the-middle", "null-dereference"),
    fallback=1,
)
