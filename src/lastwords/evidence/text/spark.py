"""Spark and YARN: executors and Python workers that were lost, and what the cluster manager says about them."""

from __future__ import annotations

from lastwords.evidence.text.reader import Reader, says

READER = Reader(
    "spark",
    (
        says("oom-kill", "exceeding memory limits", r"killed by YARN for exceeding memory limits\. (?P<used>[\d.]{1,8} [KMGT]B) of (?P<limit>[\d.]{1,8} [KMGT]B) (?P<what>\w{1,10}) memory", by="YARN"),
        says("oom-kill", "exceeding", r"killed by YARN for exceeding (?:physical |virtual )?memory limits", by="YARN"),
        says("oom-kill", "memory limit", r"running (?:beyond|\d{1,15}B beyond) (?:the )?.{0,12}(?:physical|virtual|PHYSICAL|VIRTUAL).{0,4} memory limits?", by="YARN"),
        says("oom-kill", "exit status: -10", r"exit status: -10[34]\b", by="YARN"),
        says("oom-kill", "oomkilled", r"OOMKilled\b(?![\"': =]{1,4}false)", by="Kubernetes"),
        says("memory-limit", "maxresultsize", r"serialized results of .{1,80} is bigger than spark\.driver\.maxResultSize(?: \((?P<limit>[^)]{1,24})\))?", by="spark.driver.maxResultSize"),
        says("memory-guess", "container killed on request", r"Container killed on request\. Exit code is (?:137|143)", by="YARN"),
        says("memory-guess", "possible container", r"\(SIGKILL, possible container OOM\)", by="Spark"),
        says("allocation-failed", "java heap space", by="the JVM"),
        says("allocation-failed", "gc overhead limit exceeded", by="the JVM"),
        says("allocation-failed", "unable to acquire", r"Unable to acquire \d{1,15} bytes of memory", by="Spark"),
        says("lost", "python worker exited unexpectedly"),
        says("lost", "python worker failed to connect back"),
        says("lost", "java.io.eofexception"),
        says("lost", "executorlostfailure"),
        says("lost", "lost executor", r"Lost executor \S{1,20}"),
        says("lost", "slave lost"),
        says("lost", "remote rpc client disassociated"),
        # Between the JVM and its Python worker it is a socket, too: one that is reset tells that the worker is gone.
        says("peer-lost", "socketexception", r"java\.net\.SocketException: (?:Connection reset|Broken pipe|Socket closed)"),
        says("heartbeat-lost", "executor heartbeat timed out", r"Executor heartbeat timed out after (?P<ms>\d{1,12})"),
        says("heartbeat-lost", "heartbeats to driver", r"unable to send heartbeats to driver more than \d{1,6} times"),
        says("network-failure", "fetchfailed", r"FetchFailed(?:Exception)?"),
        says("preempted", "preempted|status: -102", r"Container.{0,80}preempted|exit status: -102"),
        says("node-lost", "lost* node|lost node|exit status: -100", r"Container released on a \*?lost\*? node|exit status: -100\b"),
        says("preempted", "decommission", r"(?:executor|node|worker) (?:is )?decommission|ExecutorDecommission"),
        says("stop-request", "killed by driver|cancelled", r"(?:Executor )?killed by driver|Stage cancelled|Job \d{1,9} cancelled"),
    ),
)  # fmt: skip
