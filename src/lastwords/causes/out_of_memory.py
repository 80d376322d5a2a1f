"""Memory ran out, and the process was killed or could not go on.

Four limits end in this cause, and the facts say which: the cgroup's (a container, a Slurm job), the host's, an
engine's own (YARN, Ray, Dask and Celery kill by themselves), and the process's (rlimit, an allocation that was
refused). The kernel's killer sends SIGKILL and tells the victim nothing, so SIGKILL alone proves nothing: an
operator, a scheduler and a time-out send the same. What proves it is a counter or a line that speaks of memory.

A supervisor's question ("Perhaps out of memory?") is a guess: gunicorn asks it after every SIGKILL, also after one
that it sent itself because a worker was too slow. Memory of the GPU is another cause.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes import alone
from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import (
    ORDERS,
    bare,
    field,
    first,
    log_stops,
    names_a_reason,
    nothing_said,
    only_lost,
    reason,
    said,
)
from lastwords.causes.words import growth_of, item_name, per_item, signal_of
from lastwords.evidence.model import Evidence, Mention, SentSignal
from lastwords.evidence.quantities import duration, size

FULL = 0.98
AT_ONCE = 64 << 20
"""Bytes that one item takes beyond what its worker had: worth a word."""


def _counted(evidence: Evidence) -> Iterator[Reason]:
    kills = evidence.oom_kills
    if kills is not None and kills.after > kills.before:
        yield Reason(
            "oom_kill_counted",
            f"the kernel killed for want of memory: oom_kill {kills.before} → {kills.after}",
        )
    for line in (evidence.machine.kernel_log or ()) if evidence.machine else ():
        if line.kind == "memory kill":
            yield Reason("kernel_said", f"the kernel's log: {line.text[:180]}")
            return
    yield from _full_group(evidence)


def _full_group(evidence: Evidence) -> Iterator[Reason]:
    for group in (evidence.machine.memory_groups or ()) if evidence.machine else ():
        peak = max(group.used or 0, group.peak or 0)
        if group.limit and peak >= FULL * group.limit and signal_of(evidence) == "SIGKILL":
            yield Reason(
                "group_was_full", f"{group.path} had used {size(peak)} of the {size(group.limit)} that it may"
            )
            return


def _course(evidence: Evidence) -> Iterator[Reason]:
    """How it came to that: little by little, or all at once."""
    memory, leak, shared = (
        evidence.memory,
        growth_of(evidence, "memory"),
        growth_of(evidence, "shared memory"),
    )
    if shared is not None:
        where = "in /dev/shm, which counts as memory, too"
        yield Reason("left_in_shared_memory", f"it left {per_item(shared)} {where}")
    if leak is not None:
        yield Reason(
            "grew_to_it",
            f"it grew {per_item(leak)}: a leak, not one big item",
        )
        if leak.alike:
            many = f"{leak.alike} other workers" if leak.alike > 1 else "another worker"
            when = f"; the next death in about {duration(leak.next_death)}" if leak.next_death else ""
            yield Reason("siblings_grow", f"{many} grew the same way{when}")
    elif alone.has_passed(evidence):
        yield Reason("room_alone", f"{alone.in_words(evidence)}: together they took more than there is")
    elif (
        memory is not None
        and evidence.item is not None
        and (memory.on_item or 0) >= max(AT_ONCE, 8 * (memory.per_item or 0))
    ):
        yield Reason("took_at_once", f"{item_name(evidence.item)} took {size(memory.on_item or 0)} at once")


def _monitor(evidence: Evidence) -> SentSignal | None:
    """An engine's own monitor, which ended the process for its memory and said so."""
    return next((one for one in evidence.sent_signals or () if one.is_for_memory), None)


def _stated(evidence: Evidence) -> Iterator[Reason]:
    monitor = _monitor(evidence)
    if monitor is not None:
        yield Reason(
            "ended_by_its_engine", f"pid {monitor.sender_pid} sent {monitor.signal}: {monitor.reason}"
        )
    yield from reason(evidence, "killed_for_memory", "oom-kill")
    if not said(evidence, "oom-kill"):
        yield from reason(evidence, "over_limit", "memory-limit")
    yield from reason(evidence, "allocation_failed", "allocation-failed")
    yield from reason(evidence, "refused_in_native_code", "bad-alloc")


def _hinted(evidence: Evidence) -> Iterator[Reason]:
    if signal_of(evidence) == "SIGKILL":
        yield Reason("sigkill", "it was ended by SIGKILL, as the kernel does when memory runs out")
    elif bare(evidence, "SIGBUS"):
        yield Reason("bus_error", "a page that cannot be had for want of memory ends in SIGBUS too")
    elif only_lost(evidence):
        name = "worker_lost_too" if names_a_reason(evidence) else "worker_lost"
        yield Reason(name, "a worker vanished without a word, as it does when it is killed")
    elif log_stops(evidence):
        yield Reason("log_stops", "the log has no word of an end, as when its writer is killed")
    yield from reason(evidence, "memory_high", "memory-high")
    yield from reason(evidence, "map_refused", "map-refused")
    if only_lost(evidence) or signal_of(evidence) == "SIGKILL":
        yield from reason(evidence, "used_up", "memory-used-up")
    if not said(evidence, "oom-kill", "memory-limit"):
        yield from reason(evidence, "guessed", "memory-guess")


def _against(evidence: Evidence) -> Iterator[Reason]:
    kills = evidence.oom_kills
    if _monitor(evidence) is not None:
        return
    if kills is not None and kills.after == kills.before and not said(evidence, "allocation-failed"):
        yield Reason("no_oom_kill", f"oom_kill of its cgroup stayed {kills.after}")
    if any(sent.signal == signal_of(evidence) for sent in evidence.sent_signals or ()):
        yield Reason("sender_known", "a process of the job itself sent the signal")
    yield from reason(evidence, "said_not", "not-oom")
    if not said(evidence, "oom-kill"):
        yield from reason(evidence, "ended_by_order", *ORDERS)
    if said(evidence, "gpu-oom") and not said(evidence, "oom-kill"):
        yield Reason("of_the_gpu", "the memory that ran out is the GPU's")


def _statement(evidence: Evidence) -> Mention | None:
    """The one that says most: who killed, before who was over a limit, before what was refused."""
    kinds = (("oom-kill",), ("memory-limit",), ("allocation-failed", "bad-alloc"))
    return next((found for kind in kinds if (found := first(evidence, *kind)) is not None), None)


def _limit(evidence: Evidence) -> str | None:
    constraint = field(evidence, ("oom-kill",), "constraint")
    if constraint is not None:
        return "cgroup" if constraint == "CONSTRAINT_MEMCG" else "host"
    if _monitor(evidence) is not None:
        return "engine limit"
    found = _statement(evidence)
    if found is None:
        return _kernel_limit(evidence)
    by = found.fields.get("by", "")
    if found.kind in ("allocation-failed", "bad-alloc"):
        return "rlimit" if _address_space(evidence) else "rlimit or host"
    if "limit" in by or "cgroup" in found.quote.lower() or "Kubernetes" in by:
        return "cgroup"
    return "host" if "kernel" in by or "systemd" in by else "engine limit"


def _kernel_limit(evidence: Evidence) -> str | None:
    """The kernel's own line knows best: with its counter alone, a full machine looks like a full group."""
    for line in (evidence.machine.kernel_log or ()) if evidence.machine else ():
        if line.kind == "memory kill" and line.constraint is not None:
            return "cgroup" if line.constraint == "CONSTRAINT_MEMCG" else "host"
    kills = evidence.oom_kills
    return "cgroup" if kills is not None and kills.after > kills.before else None


def _kernel_group(evidence: Evidence) -> str | None:
    """The group whose memory was full, by the kernel's own line."""
    lines = (evidence.machine.kernel_log or ()) if evidence.machine else ()
    of_groups = (one for one in lines if one.kind == "memory kill" and one.constraint == "CONSTRAINT_MEMCG")
    return next((one.cgroup for one in of_groups if one.cgroup), None)


def _address_space(evidence: Evidence) -> int | None:
    """RLIMIT_AS of the process, if it has one."""
    limits = (evidence.machine.limits or ()) if evidence.machine else ()
    return next((one.soft for one in limits if one.name == "address space"), None)


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [*_counted(evidence), *_stated(evidence), *_hinted(evidence)]
    yield from nothing_said(reasons)
    if reasons:
        yield from _course(evidence)
        yield from _against(evidence)


def sentence(evidence: Evidence) -> str:
    monitor = _monitor(evidence)
    if monitor is not None:
        return f"Its engine ended it for its memory: {monitor.reason}."
    found = first(evidence, "oom-kill") or first(evidence, "memory-limit")
    if found is not None:
        return f"It was killed because memory ran out: {found.fields.get('by', 'a limit')} ended it."
    if _kernel_limit(evidence) == "host":
        return "The kernel killed it: the whole machine was out of memory."
    if evidence.oom_kills is not None and evidence.oom_kills.after > evidence.oom_kills.before:
        where = f" of {evidence.oom_kills.cgroup}" if evidence.oom_kills.cgroup else ""
        return f"The kernel killed it: the memory{where} was full."
    if (group := _kernel_group(evidence)) is not None:
        return f"The kernel killed it: the memory of the control group {group} was full."
    if first(evidence, "allocation-failed", "bad-alloc"):
        return "It asked for memory that there was not, and the request was refused."
    return "Memory may have run out: its end looks as if the kernel had killed it for that."


def facts(evidence: Evidence) -> Facts:
    kinds = ("oom-kill", "memory-limit", "allocation-failed", "bad-alloc")
    found = _statement(evidence)
    kills, leak = evidence.oom_kills, growth_of(evidence, "memory")
    return {
        "limit": _limit(evidence),
        "by": found.fields.get("by") if found else None,
        "asked_for": field(evidence, kinds, "size"),
        "limit_size": field(evidence, kinds, "limit"),
        "used": field(evidence, kinds, "used"),
        "cgroup": kills.cgroup if kills else _kernel_group(evidence),
        "resident": evidence.memory.resident if evidence.memory else None,
        "per_item": int(leak.per_item) if leak else None,
        "items": leak.items if leak else None,
        "on_item": evidence.memory.on_item if evidence.memory else None,
        "next_death": leak.next_death if leak else None,
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    systems = {one.system for one in evidence.mentions or ()}
    is_told = said(evidence, "oom-kill", "memory-limit", "allocation-failed") or _kernel_limit(evidence)
    if not is_told and evidence.oom_kills is None:
        yield Step(text="make sure first:", command="sudo dmesg -T | grep -iE 'killed process|out of memory'")
    if field(evidence, ("memory-limit",), "by") == "spark.driver.maxResultSize":
        yield Step(
            text="Spark: collect less (write it out, or aggregate first), or let the driver take more:",
            command="--conf spark.driver.maxResultSize=4g --conf spark.driver.memory=8g",
        )
    elif "spark" in systems:
        yield Step(
            text="Spark: give Python room beside the JVM, and fewer tasks at a time (spark.executor.cores):",
            command="--conf spark.executor.memoryOverhead=4g --conf spark.executor.pyspark.memory=4g",
        )
    if "ray" in systems:
        yield Step(
            text="Ray: ask for the memory a task needs (`@ray.remote(memory=4 * 1024**3)`), so that fewer run at once"
        )
    monitor = _monitor(evidence)
    if "dask" in systems or (monitor is not None and "Dask" in (monitor.reason or "")):
        yield Step(text="Dask: fewer threads per worker, a larger memory_limit, or smaller partitions")
    if "batch system" in systems:
        yield Step(
            text="Slurm: see what it took, and ask for more:",
            command="sacct -j JOB --format=JobID,MaxRSS,ReqMem,State",
        )
    if field(evidence, ("oom-kill", "memory-limit"), "by") == "Lambda":
        yield Step(
            text="Lambda: give the function more memory (CPU comes with it):",
            command="aws lambda update-function-configuration --function-name NAME --memory-size 2048",
        )
        return
    if field(evidence, ("allocation-failed",), "by") == "Windows":
        yield Step(
            text="Windows: start fewer workers (each reserves memory for every library it loads), or let the paging file be larger"
        )
        return
    if "kubernetes" in systems:
        yield Step(text="Kubernetes: raise resources.limits.memory, and set requests to the same value")
    yield Step(
        text="torch: fewer DataLoader workers and a smaller prefetch_factor: each worker holds its own batches"
    )
    yield Step(text="Docker: see the container's limit and what it uses:", command="docker stats --no-stream")
    if growth_of(evidence, "memory") is not None:
        yield Step(
            text="it leaks: until that is found, replace workers in time: `max_tasks_per_child=200` (pools), or a new loader each epoch"
        )
    elif evidence.memory is None:
        yield Step(
            text="see whether it grows from item to item or jumps on one:",
            command="lastwords run -- python YOUR_JOB.py",
        )


CAUSE = Cause(
    id="out-of-memory",
    title="Memory ran out",
    doc=__doc__,
    needs=("oom_kills", "sent_signals", "mentions", "status"),
    prior=-3.0,
    weights={
        "oom_kill_counted": 6.0,
        "kernel_said": 5.0,
        "group_was_full": 2.0,
        "grew_to_it": 0.3,
        "took_at_once": 0.3,
        "room_alone": 0.3,
        "siblings_grow": 0.1,
        "left_in_shared_memory": 0.3,
        "ended_by_its_engine": 6.0,
        "killed_for_memory": 6.5,
        "over_limit": 5.4,
        "allocation_failed": 4.6,
        "refused_in_native_code": 1.8,
        # Of 35 logs that say no more than this, and whose cause was found, 32 had this one.
        "sigkill": 2.75,
        "memory_high": 1.8,
        "map_refused": 2.6,
        "used_up": 3.2,
        "guessed": 0.2,
        "bus_error": 0.9,
        "worker_lost": 2.3,
        "worker_lost_too": 0.8,
        "log_stops": 0.4,
        "nothing_said": -4.0,
        "no_oom_kill": -3.5,
        "sender_known": -3.5,
        "said_not": -2.5,
        "ended_by_order": -3.1,
        "of_the_gpu": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("memory-limit", "memory-rlimit", "memory-leak", "text:out-of-memory"),
    near_misses=("text:gpu-out-of-memory", "text:time-limit", "killed-from-outside"),
)
