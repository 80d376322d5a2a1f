"""Lets every animal of the zoo die in every job, asks six questions about each death, and writes docs/zoo.md.

`python tools/zoo_table.py [--job pool]... [DEATH]...`; with a choice of either the table is printed, not written.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from zoo import keeper  # noqa: E402 (it lies beside this folder, not in the package)

PAGE = ROOT / "docs" / "zoo.md"
DEADLY_ITEM = 5
CLAIMED = 0.5
ALL_JOBS = (*keeper.JOBS, "own")
QUESTIONS = ("signal", "item", "function", "Python line", "cause", "fix")
Told = dict[str, Any]
Answers = Mapping[str, bool | None]
"""None: there is nothing to answer, e.g. no native function in an exception of Python's."""

# The same questions about 35 deaths of this kind, put to the tools there were before.
PEERS = """| tool | signal | item | function | Python line | cause | fix |
|---|---|---|---|---|---|---|
| torch DataLoader | 30/34 | 0/34 | 1/23 | 5/34 | 14/34 | 2/34 |
| the same with faulthandler in worker_init_fn | 31/35 | 0/35 | 1/24 | 25/35 | 14/35 | 2/35 |
| ProcessPoolExecutor | 7/34 | 5/34 | 1/24 | 5/34 | 12/34 | 1/34 |
| loky | 32/33 | 4/33 | 1/23 | 26/33 | 12/33 | 2/33 |
| pebble | 30/34 | 30/34 | 1/24 | 5/34 | 11/34 | 1/34 |
| Dask | 7/32 | 28/32 | 1/22 | 7/32 | 13/32 | 1/32 |
| Ray | 27/33 | 32/33 | 13/23 | 25/33 | 12/33 | 1/33 |
| torchrun @record | 31/33 | 0/33 | 1/24 | 26/33 | 12/33 | 1/33 |
| gdb on a core | 22/34 | 0/34 | 22/24 | 0/34 | 5/34 | 1/34 |
| pystack on a core | 16/34 | 21/34 | 16/24 | 21/34 | 0/34 | 0/34 |
"""

HEAD = """# The zoo: what is said of each death

Made by `python tools/zoo_table.py`, which lets every animal of `zoo/` die for real in each job: a plain loop, a
process pool, torch's DataLoader. Six questions: is the **signal** (or exit code) right, is the **item** named, the
native **function**, the **Python line**, the **cause**, and is there a **fix**? `6/6` means that all that there are
were answered rightly; a plain loop has no items, and an exception of Python's no native function. `own` is a job that
only this death makes sense in. `–`: it makes no sense in that job, or this machine lacks what it needs.

"""


def signal_right(told: Told, expected: Told, _job: str) -> bool | None:
    death = told["death"]
    if "exception" in expected:
        return bool(death["exit_code"])
    if "--kill-hung" in expected.get("options", ()):
        return None  # it lives when it is explained
    return bool(death["signal"] == expected.get("signal") and death["exit_code"] == expected.get("exit_code"))


def item_named(told: Told, _expected: Told, job: str) -> bool | None:
    if job in ("plain", "own"):
        return None
    item = told["death"]["item"]
    return item is not None and item["index"] == DEADLY_ITEM


def function_named(told: Told, expected: Told, _job: str) -> bool | None:
    if "function" not in expected:
        return None
    wanted = expected["function"] if isinstance(expected["function"], list) else [expected["function"]]
    return any(frame["function"] in wanted for frame in told["native_stack"] or ())


def line_named(told: Told, expected: Told, _job: str) -> bool:
    python = expected.get("python", "die")
    frames = list(told["python_stack"] or ())
    if python == "elsewhere":
        frames += [frame for one in told["threads"] or () for frame in one["python_stack"]]
    wanted = "die" if python in ("elsewhere", "lost") else python
    return any(frame["function"] == wanted and frame["line"] for frame in frames)


def cause_right(told: Told, expected: Told, _job: str) -> bool:
    first, *others = told["causes"]
    is_sure = first["id"] == expected["cause"] and first["confidence"] >= CLAIMED
    also = expected.get("also", ())
    return is_sure and all(one["confidence"] < CLAIMED or one["id"] in also for one in others)


def fix_given(told: Told, _expected: Told, _job: str) -> bool:
    return bool(told["causes"][0]["fix"])


ASK: dict[str, Callable[[Told, Told, str], bool | None]] = dict(
    zip(
        QUESTIONS,
        (signal_right, item_named, function_named, line_named, cause_right, fix_given),
        strict=True,
    )
)


def answers(death: str, job: str) -> Answers:
    with tempfile.TemporaryDirectory() as home:
        try:
            outcome = keeper.run(death, job, Path(home))
        except subprocess.TimeoutExpired:
            return dict.fromkeys(QUESTIONS, False)
    expected = keeper.expected(death)
    if len(outcome.deaths) != expected.get("deaths", 1):
        return dict.fromkeys(QUESTIONS, False)
    return {name: ask(outcome.deaths[-1], expected, job) for name, ask in ASK.items()}


def cell(found: Answers | None) -> str:
    if found is None:
        return "–"
    asked = {name: answer for name, answer in found.items() if answer is not None}
    wrong = [name for name, answer in asked.items() if not answer]
    return f"{len(asked) - len(wrong)}/{len(asked)}" + (f" (not: {', '.join(wrong)})" if wrong else "")


def missing(death: str, job: str) -> bool:
    lacks_torch = job == "dataloader" and importlib.util.find_spec("torch") is None
    return job not in keeper.jobs(death) or lacks_torch or keeper.missing(death) is not None


def collect(deaths: list[str], jobs: list[str]) -> dict[str, dict[str, Answers | None]]:
    table: dict[str, dict[str, Answers | None]] = {}
    for death in deaths:
        table[death] = {job: None if missing(death, job) else answers(death, job) for job in jobs}
        print(death, *(cell(found) for found in table[death].values()), file=sys.stderr)
    return table


def totals(table: dict[str, dict[str, Answers | None]], job: str) -> Iterator[str]:
    for question in QUESTIONS:
        given = [found[job] for found in table.values() if found[job] is not None]
        asked = [one[question] for one in given if one is not None and one[question] is not None]
        yield f"{sum(map(bool, asked))}/{len(asked)}" if asked else "–"


def page(table: dict[str, dict[str, Answers | None]], jobs: list[str]) -> str:
    rows = [f"| death | cause | {' | '.join(jobs)} |", f"|---|---|{'---|' * len(jobs)}"]
    for death, found in table.items():
        cells = " | ".join(cell(found[job]) for job in jobs)
        rows.append(f"| [{death}](../zoo/{death}) | {keeper.expected(death)['cause']} | {cells} |")
    sums = [f"| lastwords, {job} | {' | '.join(totals(table, job))} |" for job in jobs]
    head = f"| job | {' | '.join(QUESTIONS)} |\n|---|{'---|' * len(QUESTIONS)}"
    return (
        f"{HEAD}{chr(10).join(rows)}\n\n## Sums\n\n{head}\n{chr(10).join(sums)}\n\n## Other tools\n\n"
        f"The same questions about 35 deaths of these kinds, as measured before lastwords was written.\n\n{PEERS}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("deaths", nargs="*", metavar="DEATH")
    parser.add_argument("--job", action="append", choices=ALL_JOBS)
    chosen = parser.parse_args()
    jobs = chosen.job or list(ALL_JOBS)
    text = page(collect(chosen.deaths or keeper.animals(), jobs), jobs)
    if chosen.deaths or chosen.job:
        print(text)
    else:
        PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
