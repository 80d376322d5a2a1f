"""Airflow: tasks that the scheduler, a user or a time-out ended, and those that simply vanished."""

from __future__ import annotations

from lastwords.evidence.text.reader import Reader, says

READER = Reader(
    "airflow",
    (
        says("stop-request", "externally set to", r"has been externally set to (?P<state>\w{1,30})", decided="yes"),
        says("stop-request", "received sigterm", r"(?:Task )?received SIGTERM"),
        says("stop-request", "recorded pid", r"Recorded pid .{0,60}does not match", decided="yes"),
        says("stop-request", "sending s", r"Sending (?:Signals\.)?SIG(?:TERM|KILL) to"),
        says("stop-request", "externally", r"(?:task|process|job|instance).{0,60}(?:was |been )?killed externally|marked as failed externally", unless=r"killed externally\?", decided="yes"),
        says("time-limit", "airflowtasktimeout|process timed out", r"AirflowTaskTimeout|Process timed out, PID", by="Airflow"),
        says("time-limit", "timeout", r"(?:dagrun|task|execution)_timeout (?:reached|exceeded)|SensorTimeout|TaskDeferralTimeout", by="Airflow"),
        says("lost", "zombie", r"[Dd]etected (?:as )?zombie|zombie job"),
        says("lost", "heartbeat", r"jobs? without heartbeat|heartbeat timeout for task|not (?:sending|sent) heartbeats?"),
        says("cpu-starved", "heartbeat", r"heartbeat.{0,60}(?:took too long|too slow|recovered after (?P<seconds>[\d.]{1,9}) seconds)"),
        says("lost", "task exited with return code", r"Task exited with return code (?:Negsignal\.\w{4,8}|-\d{1,2})"),
        says("lost", "process terminated by signal"),
        says("stop-request", "marking run|task_instance_mutation|cleared by", r"Marking run .{0,120}(?:failed|success).{0,60}(?:manually|by user)|task_instance_mutation|cleared by"),
    ),
)  # fmt: skip
