"""`python -m zoo` lists the animals; `python -m zoo NAME --job pool` lets you watch one die, explained."""

from __future__ import annotations

import argparse
import os
import sys

from zoo import keeper


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m zoo", description=__doc__)
    parser.add_argument("death", nargs="?", choices=keeper.animals())
    parser.add_argument("--job", choices=(*keeper.JOBS, "own"))
    chosen = parser.parse_args()
    if chosen.death is None:
        for name in keeper.animals():
            print(f"{name:24} {keeper.expected(name)['cause']:20} {keeper.missing(name) or ''}".rstrip())
        return 0
    jobs = keeper.jobs(chosen.death)
    job = chosen.job or ("pool" if "pool" in jobs else jobs[0])
    if lack := keeper.missing(chosen.death):
        parser.exit(2, f"{chosen.death} cannot live here: {lack}\n")
    told = [*keeper.LASTWORDS, "run", *keeper.options(chosen.death), "--", *keeper.command(chosen.death, job)]
    words = keeper.in_its_place(chosen.death, told)
    os.execve(sys.executable, words, {**os.environ, "PYTHONPATH": str(keeper.ZOO.parent)})


if __name__ == "__main__":
    sys.exit(main())
