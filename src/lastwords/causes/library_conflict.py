"""Libraries that were built apart clash inside one process.

Two OpenMP runtimes, two copies of libstdc++ or protobuf, an extension built for another NumPy or torch than the one
installed: each is well alone, and the order of imports decides who suffers. Some say so ("module compiled against ABI
version", "OMP: Error #15", an undefined symbol); others crash in innocent code much later.

A crash alone does not prove it. One that goes away when the imports change places does.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import bare, field, nothing_said, reason, said
from lastwords.evidence.model import Evidence


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [
        *reason(evidence, "said_so", "abi-conflict"),
        *reason(evidence, "symbol_undefined", "symbol-undefined"),
    ]
    if bare(evidence, "SIGSEGV") and not reasons:
        reasons.append(Reason("segfault", "libraries that clash end in SIGSEGV, often in innocent code"))
        if said(evidence, "importing"):
            reasons.append(Reason("while_importing", "it happened around an import"))
    if reasons and said(evidence, "symbol-missing"):
        reasons.append(
            Reason("system_too_old", "the system's own library is older than what was built needs")
        )
    yield from nothing_said(reasons)


def sentence(evidence: Evidence) -> str:
    symbol = field(evidence, ("symbol-undefined",), "symbol")
    return (
        f"A library wants {symbol}, which the one it was loaded with does not have."
        if symbol
        else "Two libraries that do not fit together were loaded into one process."
    )


def facts(evidence: Evidence) -> Facts:
    return {"symbol": field(evidence, ("symbol-undefined",), "symbol")}


def remedy(evidence: Evidence) -> Iterator[Step]:
    text = " ".join(one.quote for one in said(evidence, "abi-conflict")).lower()
    if "numpy" in text or "abi version" in text:
        yield Step(
            text="an extension was built for another NumPy; until it has a new wheel:",
            command="python -m pip install 'numpy<2'",
        )
    if "omp" in text or "mkl" in text:
        yield Step(
            text="have one OpenMP: take all packages from one source (all conda, or all pip), and find the copies:",
            command="find $(python -c 'import site; print(site.getsitepackages()[0])') -name 'lib*omp*'",
        )
    if "tls" in text:
        yield Step(text="import that library before the others, at the top of the main module")
    yield Step(
        text="see whether another order of the imports helps; install the extension again for what is there:",
        command="python -m pip install --force-reinstall --no-binary PACKAGE PACKAGE",
    )
    yield Step(text="see that all installed packages agree:", command="python -m pip check")


CAUSE = Cause(
    id="library-conflict",
    title="Libraries in one process clash",
    doc=__doc__,
    needs=("mentions", "status"),
    prior=-3.0,
    weights={
        "said_so": 5.6,
        "symbol_undefined": 3.8,
        "segfault": 0.6,
        "while_importing": 0.8,
        "system_too_old": -2.0,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("text:library-conflict",),
    near_misses=("text:missing-dependency", "text:version-mismatch"),
)
