"""How far confidences can be believed: every case with a known cause, by how sure we were and how often right.

Reads the evidence of tests/cases, the texts of tests/corpus and, where it lies beside the checkout, the public logs;
each text also in noisy copies. Writes docs/calibration.md; `--check` says whether it is stale and exits 1. It reckons one
number, the factor by which log-odds would have to be stretched to be right on average: near 1, the weights are sound.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lastwords.diagnosis import Diagnosis  # noqa: E402 (the tests are importable only after that)
from tests.cases import diagnosis_of, names  # noqa: E402
from tests.corpus import ALIKE, Case, noise, own, shared  # noqa: E402
from tests.corpus.scoring import explained, is_honest, is_right  # noqa: E402

PAGE = ROOT / "docs" / "calibration.md"
BINS = (0.05, 0.2, 0.35, 0.5, 0.7, 0.85, 0.95, 1.0)
SEED = 11
Change = Callable[[Case, int], str]


class Claim(NamedTuple):
    """One listed cause: how sure we were, and whether it was the true one."""

    confidence: float
    is_true: bool


def animals() -> Iterator[tuple[Case, Diagnosis]]:
    """Cases of recorded deaths that the zoo knows the cause of."""
    for name in names():
        expect = ROOT / "zoo" / name / "expect.json"
        cause = json.loads(expect.read_text()).get("cause") if expect.is_file() else None
        if cause:
            yield Case(name, "zoo", (cause,), decidable=True, log=""), diagnosis_of(name)


def texts(cases: list[Case], changes: Sequence[Change] = noise.CHANGES) -> Iterator[tuple[Case, Diagnosis]]:
    for case in cases:
        yield case, explained(case.log)
        for change in changes:
            yield case, explained(change(case, SEED))


def every_case(changes: Sequence[Change]) -> Iterator[tuple[Case, Diagnosis]]:
    """All that there is to learn from, each text as it is and in these other versions."""
    yield from animals()
    yield from texts([*own(), *shared()], changes)


def claims(case: Case, diagnosis: Diagnosis) -> Iterator[Claim]:
    """Causes that a text cannot tell apart count as one; the last resort claims nothing."""
    if not case.expect:
        return  # nobody ever found out
    alike = {other for group in ALIKE if group & set(case.expect) for other in group}
    for verdict in diagnosis.causes:
        if verdict.id != "unknown":
            yield Claim(verdict.confidence, verdict.id in {*case.expect, *alike})


def stretch(found: list[Claim]) -> float:
    """The factor on log-odds that makes what happened most likely, by bisection on the derivative."""
    odds = [(math.log(max(c.confidence, 1e-6) / max(1 - c.confidence, 1e-6)), c.is_true) for c in found]
    low, high = 0.05, 20.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        slope = sum(
            x * (is_true - 1 / (1 + math.exp(-max(-50.0, min(50.0, middle * x))))) for x, is_true in odds
        )
        low, high = (middle, high) if slope > 0 else (low, middle)
    return math.sqrt(low * high)


def table(found: list[Claim]) -> str:
    rows = ["| confidence | claims | right | mean confidence |", "|---|---|---|---|"]
    for low, high in pairwise(BINS):
        inside = [
            claim
            for claim in found
            if low <= claim.confidence < high or (high == 1.0 and claim.confidence == 1.0)
        ]
        if inside:
            right = sum(claim.is_true for claim in inside) / len(inside)
            mean = sum(claim.confidence for claim in inside) / len(inside)
            rows.append(f"| {low:.2f} to {high:.2f} | {len(inside)} | {right:.0%} | {mean:.2f} |")
    return "\n".join(rows)


def scores(name: str, judged: list[tuple[Case, Diagnosis]]) -> str:
    decided = [(case, one) for case, one in judged if case.decidable]
    left = [(case, one) for case, one in judged if not case.decidable]
    right = sum(is_right(case, one) for case, one in decided)
    honest = sum(is_honest(case, one) for case, one in left)
    open_ones = f"{honest} of {len(left)}" if left else "none"
    return f"| {name} | {right} of {len(decided)} | {open_ones} |"


def page() -> str:
    groups = {"recorded deaths (tests/cases)": list(animals()), "own texts, six ways": list(texts(own()))}
    if shared():
        groups["public logs (not in this repository), six ways"] = list(texts(shared()))
    every = [claim for judged in groups.values() for pair in judged for claim in claims(*pair)]
    rows = "\n".join(scores(name, judged) for name, judged in groups.items())
    return f"""# Calibration

Made by `python tools/calibrate.py` from every case whose cause is known. A text counts in six versions: as it is, with
other numbers and paths, behind prefixes, in colours, inside a healthy log, and without the lines that decide nothing.

| cases | first cause right | left open honestly |
|---|---|---|
{rows}

## How often a claim is right

Of every cause that was listed, where the true one is known. A text that leaves it open has one true cause among several
listed ones, and our own open texts name more than one: the low rows are about those.

{table(every)}

Stretching all log-odds by {stretch(every):.2f} would fit these cases best: above 1, lastwords is more careful than it
would have to be on texts like these. The weights are not stretched: the texts of users are less clean than ours.

## On logs that nobody had seen

The texts above taught the causes what they know, so they cannot say how well it carries. In November 2026 logs were
collected from public threads, five times, and explained before anything was changed for them: three times by somebody
who had not looked at lastwords, then twice by somebody who works on it and wrote the causes down first. About half of
them have no more proof of their cause than their own words. What a round missed was learnt before the next one; 27 more
logs, taken when the fifth had been learnt, gave 7 of 7 and 19 of 20.

| round | first cause right | left open honestly | right of those called 95 % and more | 85 to 95 % | 70 to 85 % |
|---|---|---|---|---|---|
| first, 154 logs | 96 of 118 | 23 of 36 | 56 of 61 | 23 of 28 | 16 of 20 |
| second, 113 other logs | 83 of 91 | 16 of 22 | 40 of 40 | 28 of 29 | 15 of 17 |
| third, 130 other logs | 94 of 101 | 26 of 29 | 62 of 64 | 25 of 26 | 2 of 3 |
| fourth, 200 other logs | 120 of 135 | 56 of 65 | 59 of 60 | 27 of 27 | 15 of 16 |
| fifth, 170 other logs | 117 of 125 | 41 of 45 | 55 of 55 | 37 of 38 | 10 of 10 |

## Where the weights come from

`python tools/fit_weights.py --apply` writes them into the files of the causes. It begins with what was stated by hand
(tools/stated_weights.json), is drawn back to that, and takes a change only if it is better on cases that were left out
(five folds) and makes no case worse: no right first cause wrong, no honest answer dishonest, and no claim from a signal
or an exit code alone. Why so: [ADR 9](adr/0009-weights-are-fitted-near-what-was-stated.md).
"""


def main() -> int:
    wanted = page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.is_file() and PAGE.read_text() == wanted else 1
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
