"""`python -m bench [--quick] [--write] [NAME...]`: runs them, prints the table, exits 1 when a limit is missed."""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import platform
import sys
import time
from pathlib import Path
from types import ModuleType

import bench
from bench.result import Result, merged, table

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def collect() -> dict[str, ModuleType]:
    """Dropping a file in is the whole change: what has a NAME and a run() is a benchmark."""
    names = [info.name for info in pkgutil.iter_modules(bench.__path__) if not info.name.startswith("_")]
    modules = [importlib.import_module(f"bench.{name}") for name in names]
    return {module.NAME: module for module in modules if hasattr(module, "NAME")}


def machine() -> str:
    return (
        f"Python {platform.python_version()}, {platform.system()} {platform.release().partition('-')[0]}, "
        f"{os.cpu_count()} CPUs, {os.getloadavg()[0]:.0f} tasks waiting for them, {time.strftime('%Y-%m-%d')}"
    )


def write(results: list[Result], names: list[str]) -> None:
    """Of these benchmarks; without names, of all of them, and then nothing older stays."""
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    known, after = rest.split(END)
    rows, _, where = known.strip().partition("\n\n")
    if names:
        line = f"{', '.join(names)}: {machine()}"
        others = [one for one in where.splitlines() if one and not one.startswith(f"{', '.join(names)}: ")]
        rows, where = merged(rows, results), "\n\n".join([*others, line])
    else:
        rows, where = table(results), machine()
    PAGE.write_text(f"{before}{BEGIN}\n{rows}\n\n{where}\n{END}{after}")


def main() -> int:
    benches = collect()
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of: {', '.join(benches)} (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="fewer runs, wider intervals")
    parser.add_argument(
        "--write", action="store_true", help=f"put the table, or the rows of the NAMEs, into docs/{PAGE.name}"
    )
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in benches]
    if unknown:
        parser.error(f"no benchmark named {unknown[0]!r}; there are: {', '.join(benches)}")

    results: list[Result] = []
    for name in options.names or benches:
        print(f"running {name} …", file=sys.stderr, flush=True)
        found = benches[name].run(options.quick)
        print(table(found), flush=True)  # at once: a later benchmark that fails must not take these along
        results += found
    if options.write:
        write(results, options.names)
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
