"""Machines that may be taken away: a spot or preemptible instance, and a notice that it will be.

The cloud's metadata service is asked only where the machine's maker is that cloud, and for half a second at most.
"""

from __future__ import annotations

import contextlib
import os
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lastwords.prevent.checks._check import Check
from lastwords.prevent.finding import Finding, Fix, fine
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient
from lastwords.watch.proc import read_text

VENDOR = "/sys/class/dmi/id/sys_vendor"
METADATA = "http://169.254.169.254"
PATIENCE_SECONDS = 0.5
CHECKPOINTS = Fix(
    "write checkpoints, and stop cleanly on SIGTERM: there are 30 s to 2 minutes after the notice"
)


@dataclass(frozen=True, slots=True)
class Preemption:
    cloud: str | None
    is_preemptible: bool | None
    notice: str | None
    kubernetes: bool
    requeues: str | None
    """Slurm's count of restarts."""


def measure(patient: Patient) -> Preemption:
    del patient
    cloud = cloud_of(read_text(VENDOR))
    is_preemptible, notice = ask(cloud, METADATA) if cloud else (None, None)
    return Preemption(
        cloud,
        is_preemptible,
        notice,
        "KUBERNETES_SERVICE_HOST" in os.environ,
        os.environ.get("SLURM_RESTART_COUNT"),
    )


def cloud_of(vendor: str) -> str | None:
    for name, cloud in (("Amazon", "AWS"), ("Google", "Google Cloud"), ("Microsoft", "Azure")):
        if name in vendor:
            return cloud
    return None


def ask(cloud: str, base: str) -> tuple[bool | None, str | None]:
    """Whether it may be taken away, and the notice if it will be. None: no answer."""
    if cloud == "AWS":
        token = _get(f"{base}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT")
        headers = {"X-aws-ec2-metadata-token": token} if token else {}
        kind = _get(f"{base}/latest/meta-data/instance-life-cycle", headers)
        return None if kind is None else kind == "spot", _get(
            f"{base}/latest/meta-data/spot/instance-action", headers
        )
    if cloud == "Google Cloud":
        place, headers = f"{base}/computeMetadata/v1/instance", {"Metadata-Flavor": "Google"}
        kind = _get(f"{place}/scheduling/preemptible", headers)
        taken = _get(f"{place}/preempted", headers)
        return None if kind is None else kind == "TRUE", "preempted" if taken == "TRUE" else None
    headers = {"Metadata": "true"}
    kind = _get(f"{base}/metadata/instance/compute/priority?api-version=2021-02-01&format=text", headers)
    coming = _get(f"{base}/metadata/scheduledevents?api-version=2020-07-01", headers) or ""
    return None if kind is None else kind == "Spot", "Preempt is scheduled" if '"Preempt"' in coming else None


def _get(url: str, headers: Mapping[str, str], method: str = "GET") -> str | None:
    """No proxy: this address is the machine's own."""
    request = urllib.request.Request(url, headers=dict(headers), method=method)  # noqa: S310  # a fixed address
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with contextlib.suppress(OSError, ValueError), opener.open(request, timeout=PATIENCE_SECONDS) as answer:
        text: str = answer.read(1 << 16).decode("utf-8", "replace").strip()
        return text
    return None


def judge(found: Preemption, job: Job) -> Iterator[Finding]:
    del job
    where = (f"{found.cloud} (sys_vendor, metadata service)",) if found.cloud else ()
    if found.notice:
        yield Finding(
            severity="kills",
            says=f"{found.cloud} is about to take this machine away",
            measured=(*where, found.notice[:200]),
            fixes=(Fix("do not start here"), CHECKPOINTS),
        )
    elif found.is_preemptible:
        says = f"this is a spot machine of {found.cloud}: it may be taken away at any time"
        yield Finding(severity="note", says=says, measured=where, fixes=(CHECKPOINTS,))
    elif found.requeues and found.requeues.isdecimal() and int(found.requeues):
        says = (
            f"Slurm has started this job {found.requeues} times again: it was preempted, or its node failed"
        )
        yield Finding(severity="note", says=says, measured=("SLURM_RESTART_COUNT",), fixes=(CHECKPOINTS,))
    elif found.kubernetes:
        says = (
            "this is a pod: it can be evicted, and then has its grace period (30 s unless told) after SIGTERM"
        )
        yield Finding(severity="note", says=says, measured=("KUBERNETES_SERVICE_HOST",), fixes=(CHECKPOINTS,))
    else:
        yield fine("nothing says that this machine may be taken away", *where)


CHECK = Check("preemption", "preemption", measure, judge)
