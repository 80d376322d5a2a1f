"""A library or a module that the program needs is not there.

A Python module is not installed where the *worker* runs (another interpreter, another image, another PYTHONPATH), a
shared library is not on the loader's path, or the system's C library is older than the wheel needs. On a cluster the
driver often has what the workers lack. A file of your own with a standard module's name (signal.py, random.py) hides
that module and looks the same.

Libraries that are there and do not fit together are a conflict, not this.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import field, nothing_said, only_lost, reason, said
from lastwords.evidence.model import Evidence

_CUDA = re.compile(r"lib(cudart|cublas|cudnn|cufft|cusparse|cusolver|nvrtc|nccl)\w{0,20}\.so\.(\d[\d.]{0,8})")


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [
        *reason(evidence, "module_missing", "module-missing"),
        *reason(evidence, "library_missing", "library-missing"),
        *reason(evidence, "system_too_old", "symbol-missing"),
        *reason(evidence, "older_copy", "runtime-too-old"),
        *reason(evidence, "shadowed", "shadowed"),
        *reason(evidence, "hidden", "hidden-module"),
        *(
            ()
            if said(evidence, "hidden-module")
            else reason(evidence, "name_missing", "name-missing", "symbol-undefined")
        ),
        *reason(evidence, "start_failed", "start-failed"),
    ]
    if reasons and said(evidence, "fatal-python"):
        reasons.append(Reason("python_gave_up", "Python itself gave up: it does not find its own modules"))
    if only_lost(evidence):
        reasons.append(
            Reason("worker_lost", "a worker vanished without a word, as one that cannot import does")
        )
    yield from nothing_said(reasons)


def sentence(evidence: Evidence) -> str:
    module = field(evidence, ("module-missing",), "module")
    library = field(evidence, ("library-missing",), "library")
    version = field(evidence, ("symbol-missing",), "version")
    if hidden := field(evidence, ("hidden-module",), "module"):
        file = field(evidence, ("hidden-module",), "file")
        return f"Your file {file} hides Python's own module {hidden}."
    if module:
        return f"The Python that ran the worker has no module {module}."
    if version:
        return f"The system's libraries are too old: {version} is not in them."
    return (
        f"The shared library {library} is not there."
        if library
        else "Something that it needs is not installed where it ran."
    )


def facts(evidence: Evidence) -> Facts:
    return {
        "module": field(evidence, ("module-missing", "hidden-module", "shadowed"), "module"),
        "file": field(evidence, ("hidden-module",), "file"),
        "library": field(evidence, ("library-missing",), "library"),
        "version": field(evidence, ("symbol-missing",), "version"),
    }


def _known_library(name: str) -> Iterator[Step]:
    if cuda := _CUDA.search(name):
        yield Step(
            text=f"{cuda[1]} {cuda[2]} is what that extension was built for: install the build for the CUDA that is here",
            command="python -c 'import torch; print(torch.version.cuda)'; nvidia-smi | head -4",
        )
    elif name.startswith("libcuda.so"):
        yield Step(text="the driver is missing in this container:", command="docker run --gpus all …")
    elif name.startswith("libgomp.so"):
        yield Step(text="it is GCC's OpenMP:", command="sudo apt-get install libgomp1")
    elif "libomp" in name and name.endswith(".dylib"):
        yield Step(text="it is LLVM's OpenMP:", command="brew install libomp")
    elif name.startswith("libGL.so"):
        yield Step(
            text="install libgl1, or a build that draws nothing:",
            command="python -m pip install opencv-python-headless",
        )


def remedy(evidence: Evidence) -> Iterator[Step]:
    module = field(evidence, ("module-missing",), "module")
    if file := field(evidence, ("hidden-module",), "file"):
        yield Step(text=f"give {file} another name, and remove the __pycache__ beside it")
        return
    if said(evidence, "symbol-missing"):
        version = field(evidence, ("symbol-missing",), "version") or ""
        yield Step(
            text="see what the system has, and take a wheel for it (manylinux tag) or a newer image:",
            command="strings $(ldconfig -p | grep -o '/.*libstdc++.so.6$' | head -1) | grep ^GLIBCXX | tail -1"
            if version.startswith(("GLIBCXX", "CXXABI"))
            else "ldd --version | head -1",
        )
    if said(evidence, "library-missing"):
        is_mac = (field(evidence, ("library-missing",), "library") or "").endswith(".dylib")
        yield Step(
            text="see which library lacks what:",
            command="otool -L PATH_OF_THE_EXTENSION"
            if is_mac
            else "ldd PATH_OF_THE_EXTENSION.so | grep 'not found'",
        )
        yield from _known_library(field(evidence, ("library-missing",), "library") or "")
    if module:
        yield Step(
            text="install it where the worker runs, not only where the driver does:",
            command=f"python -m pip install {module.split('.')[0]}",
        )
        yield Step(
            text="see that no file of yours has that name:",
            command=f"python -c 'import {module.split('.')[0]} as m; print(m.__file__)'",
        )
    if said(evidence, "symbol-missing"):
        return
    yield Step(
        text="Spark: PYSPARK_PYTHON and --archives venv.tar.gz; Ray: runtime_env={'pip': [...]}; Dask: the same image for workers and client"
    )


CAUSE = Cause(
    id="missing-dependency",
    title="A library or module is not there",
    doc=__doc__,
    needs=("mentions", "exception"),
    prior=-3.0,
    weights={
        "module_missing": 5.6,
        "library_missing": 5.4,
        "system_too_old": 5.4,
        "older_copy": 2.4,
        "shadowed": 3.8,
        "hidden": 5.4,
        "name_missing": 1.5,
        "start_failed": 1.2,
        "worker_lost": 0.2,
        "python_gave_up": -1.8,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("missing-library", "shadowed-module", "text:missing-dependency"),
    near_misses=("text:library-conflict", "text:wrong-architecture"),
)
