"""Libraries that were built apart clash inside one process.

Two OpenMP runtimes, two copies of libstdc++ or protobuf, an extension built for another NumPy or torch than the one
installed: each is well alone, and the order of imports decides who suffers. Some say so ("module compiled against ABI
version", "OMP: Error #15", an undefined symbol); others crash in innocent code much later.

A crash alone does not prove it. One that goes away when the imports change places does. So does an OpenMP runtime that
calls abort() while a second one is loaded: Intel's and LLVM's do that when they find each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import bare, field, nothing_said, reason, said
from lastwords.causes.words import file_name, signal_of
from lastwords.evidence.frames import blamed
from lastwords.evidence.model import Copies, Evidence

_OPENMP = re.compile(r"\bomp\b|lib[gi]?omp|openmp|\bmkl")
_CUDA = re.compile(r"lib(?:cudnn|cublas|cusparse|cusolver|cufft|nvJitLink|nccl)", re.IGNORECASE)


def _cuda_library(evidence: Evidence) -> str | None:
    found = next(filter(None, (_CUDA.search(one.quote) for one in said(evidence, "symbol-undefined"))), None)
    return found[0] if found else None


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [
        *two_runtimes(evidence),
        *reason(evidence, "said_so", "abi-conflict"),
        *reason(evidence, "older_copy", "runtime-too-old"),
        *reason(evidence, "symbol_undefined", "symbol-undefined"),
        *reason(evidence, "order_matters", "import-order"),
        *reason(evidence, "two_builds", "two-builds"),
    ]
    if bare(evidence, "SIGSEGV") and not reasons:
        reasons.append(Reason("segfault", "libraries that clash end in SIGSEGV, often in innocent code"))
        if said(evidence, "importing"):
            reasons.append(Reason("while_importing", "it happened around an import"))
    if _cxx_of_the_system(evidence):
        text = "the system's C++ library was found; one in the environment may be newer"
        reasons.append(Reason("cxx_of_the_system", text))
    elif reasons and said(evidence, "symbol-missing"):
        reasons.append(
            Reason("system_too_old", "the system's own library is older than what was built needs")
        )
    yield from nothing_said(reasons)


def _cxx_of_the_system(evidence: Evidence) -> bool:
    return any(
        one.fields.get("version", "").startswith(("GLIBCXX", "CXXABI"))
        for one in said(evidence, "symbol-missing")
    )


def two_runtimes(evidence: Evidence) -> Iterator[Reason]:
    """Two copies alone are common, and mostly bear each other: torch and scikit-learn bring an OpenMP each."""
    openmp = _openmp(evidence)
    if openmp is None or signal_of(evidence) != "SIGABRT":
        return
    names = " and ".join(dict.fromkeys(file_name(path) for path in openmp.paths))
    frame = blamed(evidence)
    if frame is not None and frame.library in openmp.paths:
        yield Reason("runtime_gave_up", f"{file_name(frame.library)} called abort(), and {names} are loaded")


def _openmp(evidence: Evidence) -> Copies | None:
    return next((one for one in evidence.copies or () if one.name == "OpenMP"), None)


def sentence(evidence: Evidence) -> str:
    if any(two_runtimes(evidence)):
        return "Two OpenMP runtimes were loaded into one process, and one of them refused to go on."
    if version := field(evidence, ("runtime-too-old",), "version"):
        return (
            f"An older copy of a library was found before the one it was built with: {version} is not in it."
        )
    if builds := field(evidence, ("two-builds",), "builds"):
        return f"Two builds of one library are in the same process, and call each other: {builds}."
    symbol = field(evidence, ("symbol-undefined",), "symbol")
    return (
        f"A library wants {symbol}, which the one it was loaded with does not have."
        if symbol
        else "Two libraries that do not fit together were loaded into one process."
    )


def facts(evidence: Evidence) -> Facts:
    openmp = _openmp(evidence)
    return {
        "symbol": field(evidence, ("symbol-undefined",), "symbol"),
        "version": field(evidence, ("runtime-too-old",), "version"),
        "builds": field(evidence, ("two-builds",), "builds"),
        "runtimes": " ".join(openmp.paths) if openmp else None,
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    text = " ".join(one.quote for one in said(evidence, "abi-conflict")).lower()
    if "numpy" in text or "abi version" in text:
        yield Step(
            text="an extension was built for another NumPy; until it has a new wheel:",
            command="python -m pip install 'numpy<2'",
        )
    if _OPENMP.search(text) or any(two_runtimes(evidence)):
        yield Step(
            text="have one OpenMP: take all packages from one source (all conda, or all pip), and find the copies:",
            command="find $(python -c 'import site; print(site.getsitepackages()[0])') -name 'lib*omp*'",
        )
    if library := field(evidence, ("runtime-too-old",), "library"):
        yield Step(
            text="see what the copy that was found has:",
            command=f"strings {library} | grep -E '^(GLIBCXX|CXXABI)_' | tail -3",
        )
        yield Step(
            text="have the newer one found first: in a conda environment install it there, elsewhere take a newer image:",
            command="conda install -c conda-forge libstdcxx-ng && export LD_LIBRARY_PATH=$CONDA_PREFIX/lib",
        )
    if field(evidence, ("symbol-undefined",), "symbol") and (cuda := _cuda_library(evidence)):
        yield Step(
            text=f"two versions of {cuda} meet: torch brings its own; see what else is found first, and leave it out:",
            command=f"echo $LD_LIBRARY_PATH; ldconfig -p | grep {cuda}; python -m pip list | grep -i nvidia",
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
    needs=("mentions", "status", "copies"),
    prior=-3.0,
    weights={
        "said_so": 6.1,
        "runtime_gave_up": 5.0,
        "older_copy": 5.0,
        "cxx_of_the_system": 2.1,
        "symbol_undefined": 4.3,
        "order_matters": 5.0,
        "two_builds": 4.6,
        "segfault": 0.4,
        "while_importing": 0.7,
        "system_too_old": -2.0,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("two-openmp-runtimes", "undefined-symbol", "text:library-conflict"),
    near_misses=("text:missing-dependency", "text:version-mismatch"),
)
