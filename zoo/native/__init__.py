"""Builds and loads the C extension in which native deaths happen."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).with_name("zoonative.c")
FLAGS = ["-shared", "-fPIC", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"]


def missing() -> str | None:
    """What this machine lacks to build it, or None."""
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        return f"Python's headers ({header})"
    try:
        subprocess.run(["cc", "--version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "a C compiler (cc)"
    return None


def build() -> Path:
    """Compiles it for this interpreter; once, as long as the source does not change."""
    directory = SOURCE.parents[2] / "target" / "zoo" / sys.implementation.cache_tag
    library = directory / f"zoonative{sysconfig.get_config_var('EXT_SUFFIX')}"
    if library.exists() and library.stat().st_mtime >= SOURCE.stat().st_mtime:
        return library
    directory.mkdir(parents=True, exist_ok=True)
    # Into a name of our own and then renamed: tests that run side by side never load half a library.
    unfinished = library.with_suffix(f".{os.getpid()}")
    include = sysconfig.get_path("include")
    subprocess.run(["cc", *FLAGS, f"-I{include}", str(SOURCE), "-o", str(unfinished)], check=True)
    unfinished.rename(library)
    return library


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("zoonative", build())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
