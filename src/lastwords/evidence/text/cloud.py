"""SageMaker, Vertex AI, AWS Batch, Lambda, spot machines, CI runners: limits and reclaimed machines."""

from __future__ import annotations

from lastwords.evidence.text.reader import Reader, says

READER = Reader(
    "cloud",
    (
        says("preempted", "spot", r"(?:spot (?:instance|interruption|VM|node|request)).{0,80}(?:interrupt|reclaim|terminat|evict|preempt|notice)|EC2 Spot.{0,40}interrupt", by="the cloud"),
        says("preempted", "interruption notice", by="the cloud"),
        # So a virtual machine hears that its host wants it to end.
        says("preempted", "power key pressed", r"systemd-logind.{0,20}Power key pressed", by="the machine's host"),
        says("preempted", "spot|rebalance", r"spot interruption\b|rebalance recommendation", by="the cloud"),
        says("preempted", "instance-termination-notice", by="the cloud"),
        says("preempted", "preempt|disruptiontarget|maintenance event", r"instance (?:was |is being |will be |has been )?preempted|compute\.instances\.preempted|preemptible.{0,60}(?:stopp|terminat|shut)|maintenance event.{0,30}terminate|preemption (?:notice|signal|detected|warning)", by="the cloud"),
        says("preempted", "eventtype|instance-action", r"EventType[\"': =]{1,6}(?:Preempt|Terminate)|spot/instance-action.{0,80}(?:terminate|stop|hibernate)", by="the cloud"),
        says("preempted", "reclaimed|host ec2", r"(?:capacity|instance|machine|node|host) (?:was |has been |is being )?reclaimed|Host EC2 .{0,40}terminated", by="the cloud"),
        says("time-limit", "timeexceeded|runtimeexceeded", r"MaxRuntimeExceeded|MaxWaitTimeExceeded", by="SageMaker"),
        says("time-limit", "task timed out after", r"Task timed out after (?P<seconds>[\d.]{1,10}) seconds", by="Lambda"),
        says("time-limit", "job attempt duration exceeded timeout", by="AWS Batch"),
        says("time-limit", "maximum", r"exceed\w{0,3} (?:the )?maximum (?:execution |run |job )?(?:time|timeout)\b|maximum (?:run ?time|duration|wall time) .{0,30}(?:exceed|reach)", by="the service"),
        says("time-limit", "exceeded the maximum|operation was canceled", r"has exceeded the maximum|The operation was canceled", by="the CI service"),
        says("time-limit", "timeout|timed out|longer than|time limit|time-out", r"job .{0,60}(?:exceeded|reached) (?:the |its )?(?:timeout|time-out|time limit)|execution took longer than|(?:run|job|step) (?:has )?timed out after", by="the service"),
        says("time-limit", "timeout|time limit|time-out", r"exceed(?:ed|s|ing) (?:the|its|a) (?:configured |maximum |max |job |run |task )?(?:timeout|time-out|time limit) of (?P<seconds>\d{1,9})", by="the service"),
        says("time-limit", "timeout", r"\bTimeout ?> ?(?P<seconds>\d{1,7}(?:\.\d{1,3})?) ?s\b", by="the test runner"),
        says("time-limit", "timeout: sending signal", by="timeout(1)"),
        says("time-limit", "time limit", r"exceed(?:ed|s) (?:the |its )?(?:max(?:imum)? )?(?:running|run|execution|elapsed|wall)[- ]?time limit", by="the workflow's engine"),
        says("stop-request", "processes with sig", r"Stopping (?:all |remaining )?process(?:es)? with SIG(?:TERM|KILL)", by="the platform"),
        says("oom-kill", "replica|exit status of", r"replica .{0,60}ran (?:out-of-memory|out of memory)|exit(?:ed)? .{0,60}exit status of 137.{0,60}memory", by="Vertex AI"),
        says("oom-kill", "outofmemoryerror: container killed", r"OutOfMemoryError: Container killed due to memory usage", by="AWS Batch"),
        says("oom-kill", "runtime exited with error: signal: killed", by="Lambda"),
        says("memory-limit", "more memory", r"use (?:an? )?(?:instance|machine|node|worker|container)(?: type)? with more memory", by="the service"),
        says("oom-kill", "memory quota", r"Memory quota (?:vastly )?exceeded", by="the platform"),
        says("oom-kill", "memory", r"(?:shut ?down|kill(?:ed)?|terminated?|evict(?:ed)?|restart(?:ed)?)\b.{0,60}(?:due to|because of|for) (?:a )?(?:lack|want|shortage) of memory", by="the service"),
        says("oom-kill", "ram|memory", r"(?:us(?:ed|ing)|consum(?:ed|ing)|exhaust(?:ed|ing)) (?:up )?all (?:of )?(?:the |your )?(?:available )?(?:RAM|memory)", by="the service"),
        says("oom-kill", "out of memory|out-of-memory", r"ran (?:out of memory|out-of-memory)|has run out of memory|is out of memory", unless=r"GPU|CUDA|bfc|allocator", by="the service"),
    ),
)  # fmt: skip
