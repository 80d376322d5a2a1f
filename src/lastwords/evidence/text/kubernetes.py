"""Kubernetes, Docker and systemd: `kubectl describe`, `docker inspect`, events and units."""

from __future__ import annotations

from lastwords.evidence.text.hedges import NODE_IS_WELL
from lastwords.evidence.text.reader import Reader, says

READER = Reader(
    "kubernetes",
    (
        says("oom-kill", "oomkilled", r"OOMKilled\b(?![\"': =]{1,4}false)", by="Kubernetes, at the container's limit"),
        says("not-oom", "oomkilled", r"\"OOMKilled\": ?false|OOMKilled[=:] ?false"),
        says("oom-kill", "oomkilling|system oom", r"OOMKilling|System OOM encountered", by="the kernel, of the whole node"),
        says("oom-kill", "low on resource: memory|memorypressure", r"low on resource: memory|MemoryPressure", unless=NODE_IS_WELL, by="Kubernetes, of the whole node"),
        says("oom-kill", "container", r"container .{0,80}(?:ran )?out of memory|container \S{1,80} oom", by="the container runtime"),
        says("disk-full", "low on resource: ephemeral-storage", by="Kubernetes"),
        says("disk-full", "exceeds", r"(?:ephemeral local storage|emptyDir volume) .{0,60}exceeds", by="Kubernetes"),
        says("disk-full", "ephemeral", r"ephemeral(?: local)?[ -]storage usage exceeds", by="Kubernetes"),
        says("preempted", "preempt|disruptiontarget", r"Preempted by|Preempting|preemption.{0,40}(?:pod|node)|DisruptionTarget|PreemptionByScheduler", by="Kubernetes"),
        says("preempted", "evict", r"(?:reason|status)[\"': ]{1,6}Evicted|TaintManagerEviction|evicted (?:by|due|because)|Evicting pod|EvictionByEvictionAPI", by="Kubernetes"),
        says("preempted", "node|scaledown", r"node (?:is )?(?:shutting down|being drained|was drained|draining|cordoned)|node drain\b|NodeShutdown|imminent node shutdown|ScaleDown", by="Kubernetes"),
        says("time-limit", "deadline", r"(?:reason|Job)[\"':, ]{1,6}DeadlineExceeded|was active longer than specified deadline|activeDeadlineSeconds", by="Kubernetes"),
        says("time-limit", "longer than", r"active (?:on the node )?longer than (?:the )?specified deadline", by="Kubernetes"),
        says("work-timeout", "probe", r"(?:Liveness|Startup) probe failed|failed liveness probe", by="Kubernetes' probe"),
        says("stop-request", "container", r"(?:Stopping|Killing) container", by="Kubernetes"),
        says("wrong-machine", "exec user process", r"exec user process caused.{0,20}exec format"),
        says("time-limit", "runtimemax|timed out|timeout", r"RuntimeMaxSec|Failed with result 'timeout'|stop-sigterm' timed out|State '.{1,30}' timed out", by="systemd"),
        says("oom-kill", "failed with result 'oom-kill'", by="systemd"),
        says("no-threads", "pids|tasksmax", r"pids limit|pids cgroup|TasksMax", by="the container's pids limit"),
    ),
)  # fmt: skip
