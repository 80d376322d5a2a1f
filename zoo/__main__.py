"""`python -m zoo` lists the animals; `python -m zoo NAME --job pool` lets you watch one die, explained."""

from __future__ import annotations

import argparse
import os
import sys

from zoo import keeper


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m zoo", description=__doc__)
    parser.add_argument("death", nargs="?", choices=keeper.animals())
    parser.add_argument("--job", choices=keeper.JOBS, default="pool")
    chosen = parser.parse_args()
    if chosen.death is None:
        for name in keeper.animals():
            print(f"{name:24} {keeper.expected(name)['cause']:20} {keeper.missing(name) or ''}".rstrip())
        return 0
    words = [sys.executable, "-m", "lastwords", "run", "--", *keeper.command(chosen.death, chosen.job)]
    os.execve(sys.executable, words, {**os.environ, "PYTHONPATH": str(keeper.ZOO.parent)})


if __name__ == "__main__":
    sys.exit(main())
