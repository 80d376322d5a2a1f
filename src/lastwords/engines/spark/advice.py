"""What to do about a cause when the job runs on Spark: the same as elsewhere, in Spark's own words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lastwords import Diagnosis

_EXPORT = re.compile(r"export (\w+)=(\S+)")


def steps(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    """Text and command, to be added to the steps that the cause itself has."""
    best = diagnosis.best
    if best is None:
        return
    for step in best.steps:
        variable = _EXPORT.fullmatch(step.command or "")
        if variable is not None:
            yield (
                "that variable, for executors:",
                f"spark-submit --conf spark.executorEnv.{variable[1]}={variable[2]} ...",
            )
    if best.id == "isa-mismatch":
        yield (
            f"or let Spark place the job on hosts that have {best.facts.get('extension') or 'it'}:",
            "lastwords scan --emit spark >> conf/spark-defaults.conf",
        )
    if best.id == "out-of-memory":
        yield (
            "Python's memory is not the JVM's; give an executor more beside its heap, or fewer tasks at once:",
            "spark-submit --conf spark.executor.memoryOverhead=2g --conf spark.executor.cores=1 ...",
        )
