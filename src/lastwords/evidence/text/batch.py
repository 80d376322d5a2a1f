"""Slurm, LSF, PBS, SGE and HTCondor: limits of time and memory, preemption, cancelled jobs, nodes that failed."""

from __future__ import annotations

from lastwords.evidence.text.reader import Reader, says

READER = Reader(
    "batch system",
    (
        says("oom-kill", "oom", r"detected \d{1,9} oom[-_ ]kill event", by="Slurm, at the job's limit"),
        says("oom-kill", "out-of-memory handler", r"cgroup out-of-memory handler", by="Slurm, at the job's limit"),
        says("oom-kill", "oom killed|oom event", r"(?:step tasks|task|processes) ha(?:ve|s) been OOM Killed|OOM event for task", by="Slurm, at the job's limit"),
        says("oom-kill", "out_of_memory", r"\bOUT_OF_ME(?:MORY)?\b", by="Slurm, at the job's limit"),
        says("oom-kill", "memory limit", r"exceeded (?:job |step )?memory limit", by="Slurm"),
        says("oom-kill", "term_memlimit", by="LSF"),
        says("oom-kill", "exceeded limit", r"(?:mem|vmem|pmem|pvmem)\b.{0,40}exceeded limit", by="PBS"),
        says("oom-kill", "limit", r"exceed\w{0,3} (?:the )?(?:hard|soft) limit \"?[hs]_(?:vmem|rss|data)", by="SGE"),
        says("time-limit", "time limit", r"(?:CANCELLED AT .{0,40})?DUE TO TIME LIMIT", by="Slurm"),
        says("time-limit", "timelimit|state=timeout", r"\(TimeLimit\)|REASON_TIMELIMIT|State=TIMEOUT", by="Slurm"),
        says("time-limit", "timeout", r"\bTIMEOUT\b.{0,40}\b0:\d{1,2}\b|JobState=TIMEOUT", by="Slurm"),
        says("time-limit", "runlimit|cpulimit", r"TERM_RUNLIMIT|TERM_CPULIMIT", by="LSF"),
        says("time-limit", "walltime", r"walltime.{0,40}exceed|exceed.{0,40}walltime", by="PBS"),
        says("time-limit", "h_rt|s_rt|wallclock", r"exceed\w{0,3} (?:the )?(?:hard|soft) (?:limit )?(?:wallclock|h_rt|s_rt)", by="SGE"),
        says("time-limit", "wall clock", r"wall ?clock.{0,30}(?:exceed|limit)", by="the batch system"),
        says("preempted", "preempt|disruptiontarget", r"DUE TO PREEMPTION|TERM_PREEMPT|job (?:was|has been|got) preempted|\bPREEMPTED\b|preempted by|requeued due to preemption", by="the batch system"),
        says("preempted", "evict", r"Job was evicted", by="HTCondor"),
        says("node-lost", "node failure|node_fail", r"DUE TO NODE FAILURE|NODE_FAIL"),
        says("cancelled", "cancelled", r"\*{3} (?:JOB|STEP) \S{1,40} ON \S{1,80} CANCELLED AT (?!.{0,60}DUE TO)", by="Slurm"),
        says("cancelled", "scancel|cancelled by", r"\bscancel\b|CANCELLED by \d{1,9}", by="Slurm"),
        says("cancelled", "term_owner|by owner|by user|qdel", r"TERM_OWNER|job killed by owner|deleted by user|qdel", by="its owner"),
        says("lost", "srun: error", r"task \d{1,6}: (?:Killed|Segmentation fault|Exited with exit code|Aborted|Out Of Memory)"),
        says("signal", "srun: error", r"task \d{1,6}: Killed", signal="SIGKILL"),
        says("oom-kill", "task", r"task \d{1,6}: Out Of Memory", by="Slurm, at the job's limit"),
    ),
)  # fmt: skip
