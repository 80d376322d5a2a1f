"""Ray: tasks and actors whose workers died, and the raylet's own account of why."""

from __future__ import annotations

from lastwords.evidence.text.reader import Reader, says

_NO_RAYLET = r"Raylet (?:is |was )?(?:terminated|died|has died|gone)|LocalRayletDiedError"

READER = Reader(
    "ray",
    (
        says("oom-kill", "killed due to memory pressure", r"[1-9]\d{0,6} Workers? \(tasks / actors\) killed due to memory pressure", by="Ray's memory monitor"),
        says("oom-kill", "memory monitor", r"memory monitor.{0,80}kill|killed by the memory monitor", by="Ray's memory monitor"),
        says("oom-kill", "running low on memory", r"killed due to the node running low on memory", by="Ray's memory monitor"),
        says("oom-kill", "outofmemoryerror|task was killed", r"ray\.exceptions\.OutOfMemoryError|Task was killed due to.{0,40}memory", by="Ray's memory monitor"),
        says("oom-kill", "node_out_of_memory", by="Ray's memory monitor"),
        says("oom-kill", "memory low at node", r"memory low at node.{0,300}\bkilling\b", by="Ray's memory monitor"),
        says("allocation-failed", "objectstorefullerror", r"ObjectStoreFullError", by="Ray's object store"),
        says("memory-high", "object store|objectstorefullerror", r"object store (?:memory )?(?:is full|full)|ObjectStoreFullError", by="Ray"),
        says("memory-guess", "oom killer", r"killed by SIGKILL by OOM killer", by="Ray, as the first of three"),
        says("memory-guess", "memory limit", r"may have exceeded (?:K8s |Kubernetes )?pod memory limits?", by="Ray, as a guess"),
        says("shm-small", "object store is using /tmp instead of /dev/shm"),
        says("lost", "worker died unexpectedly", r"The worker died unexpectedly while executing"),
        says("lost", "workercrashederror"),
        says("lost", "trainingfailederror"),
        says("lost", "actordiederror|rayactorerror", r"ActorDiedError|RayActorError"),
        says("lost", "a worker died or was killed"),
        says("lost", "worker unexpectedly exits with a connection error"),
        says("parent-gone", "raylet|agent", r"because (?:the |its )?(?:raylet|agent) (?:process )?(?:died|failed)"),
        # The node's own process is gone, and takes its workers along: of what it died, they do not know.
        says("lost", "raylet", _NO_RAYLET),
        says("manager-lost", "raylet", _NO_RAYLET),
        says("preempted", "nodediederror|preempted", r"NodeDiedError|node.{0,60}(?:was|been) preempted"),
        says("node-lost", "marked dead", r"marked dead because the detector has missed too many heartbeats"),
        says("network-failure", "gcs", r"(?:Failed to connect to GCS|GCS (?:is )?(?:unavailable|not reachable|connection))"),
        says("heartbeat-lost", "missed too many heartbeats"),
        says("heartbeat-lost", "marked", r"mistakenly (?:been )?marked (?:as )?dead"),
        says("loop-blocked", "heartbeat was sent", r"Last heartbeat was sent \d{4,9} ms ago"),
        says("cpu-warning", "overloaded", r"(?:machine|node|host|raylet|process)\b.{0,40} (?:has become|is|became|was) overloaded"),
        says("worker-exited", "intended_", r"INTENDED_(?:SYSTEM|USER)_EXIT"),
        says("worker-exited", "exit_actor|systemexit", r"exit_actor\(\)|ray\.actor\.exit_actor|SystemExit (?:is|was) raised"),
        says("start-failed", "runtimeenvsetuperror|runtime environment", r"RuntimeEnvSetupError|failed to set up (?:the )?runtime environment"),
        says("start-failed", "not registered|failed to startup", r"worker processes? (?:has|have) not registered within the timeout|failed to startup"),
    ),
)  # fmt: skip
