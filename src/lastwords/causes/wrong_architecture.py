"""The program or a library was built for another kind of machine.

An arm64 image on an amd64 host, an x86-64 wheel under an arm64 Python (or under Rosetta), a 32-bit library in a 64-bit
process, a wheel for musl on glibc. The loader refuses before anything runs: "exec format error", "wrong ELF class",
"incompatible architecture".

A CPU of the right kind that lacks an instruction is `isa-mismatch`; a C library that is too old is a missing
dependency.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import field, nothing_said, reason
from lastwords.evidence.model import Evidence


def judge(evidence: Evidence) -> Iterator[Reason]:
    yield from nothing_said([*reason(evidence, "said_so", "wrong-machine")])


def sentence(evidence: Evidence) -> str:
    found, needed = (field(evidence, ("wrong-machine",), name) for name in ("found", "needed"))
    both = f": it is for {found}, this needs {needed}" if found and needed else ""
    return f"It was built for another kind of machine{both}."


def facts(evidence: Evidence) -> Facts:
    kinds = ("wrong-machine",)
    return {"found": field(evidence, kinds, "found"), "needed": field(evidence, kinds, "needed")}


def remedy(_evidence: Evidence) -> Iterator[Step]:
    yield Step(text="compare the machine with the file:", command="uname -m; file -L $(command -v python3)")
    yield Step(
        text="Docker: build for both, or name the platform:",
        command="docker buildx build --platform linux/amd64,linux/arm64 .",
    )
    yield Step(
        text="Kubernetes: nodeSelector kubernetes.io/arch; macOS: use a Python of the machine's own kind (arm64), not one under Rosetta"
    )
    yield Step(
        text="a wheel: install it again on this machine:",
        command="python -m pip install --force-reinstall --no-cache-dir PACKAGE",
    )


CAUSE = Cause(
    id="wrong-architecture",
    title="Built for another kind of machine",
    doc=__doc__,
    needs=("mentions",),
    prior=-3.0,
    weights={
        "said_so": 6.5,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("wrong-architecture", "text:wrong-architecture"),
    near_misses=("text:isa-mismatch", "text:missing-dependency"),
)
