"""Slurm, LSF, PBS, SGE and HTCondor: limits of time and memory, preemption, cancelled jobs, nodes that failed."""

from __future__ import annotations

from lastwords.evidence.text.reader import Reader, says

READER = Reader(
    "batch system",
    (
        says("oom-kill", "oom", r"detected \d{1,9} oom[-_ ]kill event", by="Slurm, at the job's limit"),
        says("oom-kill", "out-of-memory handler", r"cgroup out-of-memory handler", sure=True, by="Slurm, at the job's limit"),
        says("oom-kill", "oom killed|oom event", r"(?:step tasks|task|processes) ha(?:ve|s) been OOM Killed|OOM event for task", by="Slurm, at the job's limit"),
        says("oom-kill", "out_of_me", r"(?-i:\bOUT_OF_ME(?:MORY\b|\b|\+))", unless="CUDA", by="Slurm, at the job's limit"),
        says("oom-kill", "memory limit", r"exceeded (?:job |step )?memory limit", by="Slurm"),
        says("oom-kill", "term_memlimit|term_swap", by="LSF"),
        says("no-threads", "term_threadlimit|term_processlimit", by="LSF"),
        says("oom-kill", "exceeded limit", r"(?:mem|vmem|pmem|pvmem)\b.{0,40}exceeded limit", by="PBS"),
        says("oom-kill", "limit", r"exceed\w{0,3} (?:the )?(?:hard|soft) limit \"?[hs]_(?:vmem|rss|data)", by="SGE"),
        says("time-limit", "time limit", r"(?:CANCELLED AT .{0,40})?DUE TO TIME LIMIT", by="Slurm"),
        says("time-limit", "timelimit|state=timeout", r"\(TimeLimit\)|REASON_TIMELIMIT|State=TIMEOUT", by="Slurm"),
        says("time-limit", "timeout", r"(?-i:\bTIMEOUT\s.{0,40}\b0:\d{1,2}\b)|JobState=TIMEOUT", by="Slurm"),
        says("time-limit", "requeued because", r"not requeued because: timed[- ]out", by="Slurm"),
        says("time-limit", "runlimit|cpulimit", r"TERM_RUNLIMIT|TERM_CPULIMIT", by="LSF"),
        says("time-limit", "term_deadline|term_window", by="LSF"),
        says("time-limit", "walltime", r"walltime.{0,40}exceed|exceed.{0,40}walltime", by="PBS"),
        says("oom-kill", "h_vmem|s_vmem|h_rss|s_rss|h_data", r"\b[hs]_(?:vmem|rss|data)\b.{0,24}(?:exceed|reach)", by="SGE"),
        says("time-limit", "h_rt|s_rt|h_cpu|s_cpu|wallclock", r"exceed\w{0,3} (?:the )?(?:hard|soft) (?:limit )?(?:wallclock|h_rt|s_rt)|\b[hs]_(?:rt|cpu)\b.{0,24}(?:exceed|reach)", by="SGE"),
        says("time-limit", "wall clock|wallclock", r"wall ?clock.{0,30}(?:exceed|limit)|exceed\w{0,3} .{0,20}wall ?clock", by="the batch system"),
        says("preempted", "preempt|disruptiontarget", r"DUE TO PREEMPTION|TERM_PREEMPT|job (?:was|has been|got) preempted|\bPREEMPTED\b|preempted by|requeued due to preemption", unless=r"preempted,? or|or (?:was |got )?preempted", by="the batch system"),
        says("preempted", "evict", r"Job was evicted|JobEvictedEvent", by="HTCondor"),
        says("peer-lost", "job reconnection failed|job disconnected", r"Job reconnection failed|Job disconnected, attempting", by="HTCondor"),
        says("node-lost", "node failure|node_fail", r"DUE TO NODE FAILURE|NODE_FAIL"),
        says("cancelled", "cancelled", r"\*{3} (?P<scope>JOB|STEP) \S{1,40} ON \S{1,80} CANCELLED AT (?!.{0,60}DUE TO)", by="Slurm"),
        says("cancelled", "scancel|cancelled by", r"\bscancel\b|CANCELLED by \d{1,9}", by="Slurm"),
        says("cancelled", "term_owner|by owner|by user|qdel", r"TERM_OWNER|job killed by owner|deleted by user|qdel", by="its owner"),
        says("cancelled", "by ", r"\b(?:task|job|run|workflow|query|stage|pipeline|step)\b (?:was |has been )?(?:cancel+ed|aborted|stopped|killed|terminated) (?:manually )?by (?:the |an? )?(?:user|operator|admin)", by="somebody"),
        says("cancelled", "term_", r"TERM_(?:ADMIN|FORCE_ADMIN|FORCE_OWNER|EXTERNAL_SIGNAL|REQUEUE_ADMIN|REQUEUE_OWNER)", by="LSF"),
        says("cancelled", "deleted at request of", r"Job deleted at request of (?!root@)", by="PBS"),
        says("lost", "srun: error", r"task \d{1,6}: (?:Killed|Segmentation fault|Exited with exit code|Aborted|Out Of Memory)"),
        says("signal", "srun: error", r"task \d{1,6}: Killed", signal="SIGKILL"),
        says("oom-kill", "task", r"task \d{1,6}: Out Of Memory", by="Slurm, at the job's limit"),
    ),
)  # fmt: skip
