"""Two sides run versions that do not go together.

Driver and worker with different Pythons, client and server of different releases, a driver of the GPU that is older
than CUDA needs, bytecode or pickles of another Python, a package that asks for an older one. Each side alone is well.

Binary builds that clash inside one process are a conflict of libraries; a missing module is a missing dependency.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import field, first, nothing_said, reason, said
from lastwords.evidence.model import Evidence

_OLD_DRIVER = re.compile(
    r"unsupported toolchain|UNSUPPORTED_PTX|driver version is insufficient|driver .{0,20}too old"
)


def judge(evidence: Evidence) -> Iterator[Reason]:
    stated = said(evidence, "version-mismatch")
    reasons = [
        *reason(evidence, "said_so", "version-mismatch"),
        *(() if stated else reason(evidence, "warned", "version-warning")),
        *reason(evidence, "name_missing", "name-missing", "attribute-missing"),
        *reason(evidence, "symbol_undefined", "symbol-undefined"),
        *reason(evidence, "older_copy", "runtime-too-old"),
    ]
    if reasons and (hidden := first(evidence, "hidden-module")):
        reasons.append(
            Reason("hidden", f"the module that was found is a file of yours: {hidden.fields['file']}")
        )
    yield from nothing_said(reasons)


def sentence(evidence: Evidence) -> str:
    worker, driver = (field(evidence, ("version-mismatch",), name) for name in ("worker", "driver"))
    if worker and driver:
        return f"The worker runs Python {worker.strip()}, the driver {driver.strip(' ,')}: they must be the same."
    match _of_the_driver(evidence):
        case "module":
            return "The GPU's driver was updated under a running system: its library and its kernel module differ."
        case "old":
            return "The GPU's driver is older than the CUDA that the program was built with."
    return "Two parts of the job have versions that do not go together."


def _of_the_driver(evidence: Evidence) -> str | None:
    text = " ".join(one.quote for one in said(evidence, "version-mismatch"))
    if "Driver/library version mismatch" in text:
        return "module"
    return "old" if _OLD_DRIVER.search(text) else None


def facts(evidence: Evidence) -> Facts:
    kinds = ("version-mismatch",)
    return {"worker": field(evidence, kinds, "worker"), "driver": field(evidence, kinds, "driver")}


def remedy(evidence: Evidence) -> Iterator[Step]:
    match _of_the_driver(evidence):
        case "module":
            yield Step(
                text="restart the host when its jobs allow it: the module that is loaded is the old one:",
                command="cat /proc/driver/nvidia/version",
            )
            return
        case "old":
            yield Step(
                text="see what the driver can run (top right), and what the program was built with:",
                command="nvidia-smi | head -4; python -c 'import torch; print(torch.version.cuda)'",
            )
            yield Step(text="update the driver on the host, or take a build or an image of an older CUDA")
            return
    if field(evidence, ("version-mismatch",), "driver"):
        yield Step(
            text="give both sides the same interpreter:",
            command="export PYSPARK_PYTHON=python3.11 PYSPARK_DRIVER_PYTHON=python3.11",
        )
    yield Step(
        text="compare both sides:",
        command="python -V; python -m pip list | grep -iE 'torch|numpy|ray|dask|pyspark|protobuf|cloudpickle'",
    )
    yield Step(
        text="pin the same versions for client and cluster; Dask shows them:",
        command="python -c 'from distributed import Client; Client(\"ADDRESS\").get_versions(check=True)'",
    )
    yield Step(text="GPU: see which CUDA the driver can run (top right):", command="nvidia-smi | head -4")


CAUSE = Cause(
    id="version-mismatch",
    title="Versions that do not go together",
    doc=__doc__,
    needs=("mentions", "exception"),
    prior=-3.0,
    weights={
        "said_so": 5.9,
        # Dask's table of versions: most clusters that print it work.
        "warned": 2.75,
        "name_missing": 2.9,
        "symbol_undefined": 1.4,
        "older_copy": 1.8,
        "hidden": -4.0,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("other-pythons-bytecode", "text:version-mismatch"),
    near_misses=("text:library-conflict", "text:missing-dependency"),
)
