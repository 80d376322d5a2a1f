"""What a log leaves open, and where to look next: in the words of the system that wrote it."""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.evidence import signals
from lastwords.evidence.missing import RUN
from lastwords.evidence.model import Evidence, Missing

# Where each system keeps the words of the worker itself.
PLACES = {
    "spark": "the executor's own stderr (`yarn logs -applicationId ID`, or the executor's page of the Spark UI)",
    "ray": "the worker's own log: `ls -t /tmp/ray/session_latest/logs/worker-*.err | head -3`",
    "dask": "the nanny's and the worker's log of that minute (`client.get_worker_logs(nanny=True)`)",
    "celery": "the worker's log at that minute, and `sudo dmesg -T | tail -50` on its host",
    "gunicorn": "gunicorn's own log with `--log-level debug`, and `sudo dmesg -T | tail -50` on its host",
    "uwsgi": "uWSGI's log a minute back, and `sudo dmesg -T | tail -50` on its host",
    "airflow": "the scheduler's log of that minute; on Kubernetes `kubectl describe pod POD`",
    "batch system": "the job's accounting: `sacct -j JOB --format=JobID,State,ExitCode,MaxRSS,Elapsed,Timelimit`",
    "kubernetes": "`kubectl describe pod POD` and `kubectl get events --sort-by=.lastTimestamp`",
    "torchrun": "the first rank that failed: `torchrun --log-dir logs --redirects 3 --tee 3 ...`, then its own stderr",
    "torch DataLoader": "the same run with `num_workers=0`: the worker's own error then has a traceback",
    "process pool": "the worker's own stderr, with `PYTHONFAULTHANDLER=1` set",
}


def missing_from_text(evidence: Evidence) -> Iterator[Missing]:
    mentions = evidence.mentions or ()
    if not mentions and evidence.exception is None:
        yield Missing(
            what="any line that speaks of a death",
            how_to_collect="give the end of the worker's own stderr, or run the job under `lastwords run -- …`",
        )
    systems = dict.fromkeys(one.system for one in mentions if one.kind in ("lost", "stop-request", "signal"))
    for system in systems:
        if system in PLACES:
            yield Missing(what=f"what the worker itself said ({system})", how_to_collect=PLACES[system])
    signal = evidence.status.signal if evidence.status else None
    if signal == "SIGKILL":
        yield Missing(
            what="whether memory ran out on that host",
            how_to_collect="sudo dmesg -T | grep -iE 'killed process|out of memory'",
        )
    elif signal == "SIGBUS":
        yield Missing(
            what="whether shared memory or a mapped file is to blame",
            how_to_collect="df -h /dev/shm while it runs, free -g, and whether a file it maps changes",
        )
    elif signals.family_of(signal) in ("fault", "abort"):
        yield Missing(
            what="the native function that faulted",
            how_to_collect=f"{RUN}, or open the core (`lastwords explain core.PID`)",
        )
    if any(one.kind in ("waiting", "no-progress", "deadlock") for one in mentions):
        yield Missing(
            what="where each worker stands",
            how_to_collect="py-spy dump --pid PID of a worker (not of the parent), or `lastwords run -- …`",
        )
    if signal is None:
        yield Missing(what="what the worker was doing (item, stack, registers)", how_to_collect=RUN)
