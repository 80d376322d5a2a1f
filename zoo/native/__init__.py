"""Builds and loads the extensions in which native deaths happen."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
COMPILERS = {".c": "cc", ".cpp": "c++"}
FLAGS = ["-shared", "-fPIC", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread"]


def missing(name: str = "zoonative") -> str | None:
    """What this machine lacks to build that extension, or None."""
    compiler = COMPILERS[_source(name).suffix]
    if shutil.which(compiler) is None:
        return f"a compiler ({compiler})"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return None if header.exists() else f"Python's headers ({header})"


def _source(name: str) -> Path:
    (source,) = (path for path in HERE.glob(f"{name}.*") if path.suffix in COMPILERS)
    return source


def build(name: str = "zoonative") -> Path:
    """Compiles it for this interpreter; once, as long as the source does not change."""
    source = _source(name)
    library = directory() / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if library.exists() and library.stat().st_mtime >= source.stat().st_mtime:
        return library
    made = unfinished(library)
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run([COMPILERS[source.suffix], *FLAGS, include, str(source), "-o", str(made)], check=True)
    made.rename(library)
    return library


def directory() -> Path:
    """Of what is built for this interpreter."""
    place = HERE.parents[1] / "target" / "zoo" / sys.implementation.cache_tag
    place.mkdir(parents=True, exist_ok=True)
    return place


def unfinished(library: Path) -> Path:
    """A name of our own, to be renamed in the end: tests that run side by side never load half a library."""
    return library.with_suffix(f".{os.getpid()}")


def load(name: str = "zoonative") -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, build(name))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
