"""Would other weights explain the known deaths better? Fits them, checks them on cases left out, and may write them.

`python tools/fit_weights.py` prints what it finds; `--apply` writes the weights into src/lastwords/causes. It begins with
the weights that were stated by hand (stated_weights.json; a new reason is stated in its cause's file), so that doing it
twice gives the same.

Each cause is a logistic regression: its prior and the weights of its named reasons. A text from which nobody can tell
does not make its causes true: each has a part of it, below one half. The texts are ours and cleaner than those of users,
so a plain fit would only grow more sure. Three guards: a weight is drawn back to where it was (`PULL`), it keeps its
sign and its bounds, and a change is taken only if it is better on cases that were left out (five folds; the versions of
a text are always in one fold) and no case is explained worse.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import signal
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lastwords.causes import Cause, all_causes  # noqa: E402 (the tests are importable only after that)
from lastwords.diagnosis import Diagnosis, diagnose  # noqa: E402
from lastwords.evidence.assemble import from_status  # noqa: E402
from lastwords.evidence.model import Status  # noqa: E402
from tests.cases import evidence_of, names  # noqa: E402
from tests.corpus import ALIKE, Case, noise  # noqa: E402
from tests.corpus.scoring import SURE, is_honest, is_right  # noqa: E402

FOLDS = 5
OPEN = 0.4
"""The most that one cause of a text has that leaves it open: an answer above one half would not be honest there."""
PULL = 2.0
"""How many cases it takes to move a weight by one."""
SMALLEST, LARGEST = 0.2, 8.0
STEPS = 200
CLOSER = "closer_cause"
STATED = ROOT / "tools" / "stated_weights.json"
REST = "unknown"
"""What is left when nothing speaks: it is stated, and not fitted."""

Weights = dict[str, float]
Judged = tuple[Case, Diagnosis]


class Row(NamedTuple):
    """The reasons that a cause gave in some cases, and how true it was there, from 0 to 1."""

    names: tuple[str, ...]
    offset: float
    truth: float


Rows = Counter[Row]


def rows_of(cause: Cause, judged: Iterable[Judged], share: Mapping[str, float]) -> Rows:
    found: Rows = Counter()
    for case, diagnosis in judged:
        if case.expect and not _cannot_tell(cause, case):
            found[_row(cause, case, diagnosis)] += share[case.name]  # type: ignore[assignment]  # parts of a case
    return found


def _cannot_tell(cause: Cause, case: Case) -> bool:
    """The text does not tell this cause from the true one: nothing can be learnt about it here."""
    alike = {other for group in ALIKE if group & set(case.expect) for other in group}
    return cause.id in alike and cause.id not in case.expect


def _row(cause: Cause, case: Case, diagnosis: Diagnosis) -> Row:
    verdict = next(one for one in diagnosis.verdicts if one.id == cause.id)
    return Row(
        tuple(sorted(term.name for term in verdict.terms if term.name != CLOSER)),
        cause.prior + sum(term.weight for term in verdict.terms if term.name == CLOSER),
        _truth(cause, case),
    )


def _truth(cause: Cause, case: Case) -> float:
    if cause.id not in case.expect:
        return 0.0
    return 1.0 if case.decidable else min(OPEN, 1 / len(case.expect))


def probability(row: Row, weights: Mapping[str, float]) -> float:
    odds = row.offset + sum(weights[name] for name in row.names)
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, odds))))


def fit(start: Mapping[str, float], rows: Rows) -> Weights:
    """The likeliest weights near `start`: steps along the gradient, each no larger than is safe."""
    weights = dict(start)
    seen = Counter(dict.fromkeys(start, PULL))
    for row, count in rows.items():
        seen.update(dict.fromkeys(row.names, count / 4))  # type: ignore[arg-type]  # parts of a case
    for _ in range(STEPS):
        slope = {name: PULL * (start[name] - weights[name]) for name in start}
        for row, count in rows.items():
            error = count * (row.truth - probability(row, weights))
            for name in row.names:
                slope[name] += error
        for name in start:
            weights[name] = _bounded(weights[name] + slope[name] / (4 * seen[name]), start[name])
    return weights


def _bounded(weight: float, start: float) -> float:
    least = min(SMALLEST, abs(start))
    size = max(least, min(LARGEST, weight if start > 0 else -weight))
    return size if start > 0 else -size


def loss(rows: Rows, weights: Mapping[str, float]) -> float:
    """Minus the logarithm of how likely it made what was true, of all cases together."""
    total = 0.0
    for row, count in rows.items():
        chance = min(1 - 1e-9, max(1e-9, probability(row, weights)))
        total -= count * (row.truth * math.log(chance) + (1 - row.truth) * math.log(1 - chance))
    return total


class Finding(NamedTuple):
    cause: Cause
    """With its stated weights."""
    fitted: Weights
    loss_now: float
    loss_left_out: float
    """Of weights that had not seen the cases they were tried on."""

    @property
    def is_better(self) -> bool:
        return self.loss_left_out < self.loss_now * 0.98 - 0.01

    @property
    def moved(self) -> dict[str, tuple[float, float]]:
        pairs = {name: (self.cause.weights[name], round(new, 1)) for name, new in self.fitted.items()}
        return {name: pair for name, pair in pairs.items() if abs(pair[0] - pair[1]) >= 0.1}


def findings(judged: Sequence[Judged]) -> Iterator[Finding]:
    versions = Counter(case.name for case, _ in judged)
    share = {name: 1 / count for name, count in versions.items()}
    folds = [[pair for pair in judged if _fold(pair[0]) == number] for number in range(FOLDS)]
    for cause in stated():
        if cause.id == REST:
            continue
        parts = [rows_of(cause, fold, share) for fold in folds]
        whole: Rows = Counter()
        for part in parts:
            whole.update(part)
        left_out = sum(loss(part, fit(cause.weights, _without(whole, part))) for part in parts)
        yield Finding(cause, fit(cause.weights, whole), loss(whole, cause.weights), left_out)


def _fold(case: Case) -> int:
    return zlib.crc32(case.name.encode()) % FOLDS


def _without(whole: Rows, part: Rows) -> Rows:
    rest: Rows = Counter(whole)
    rest.subtract(part)
    return Counter({row: count for row, count in rest.items() if count > 1e-9})


def bare_endings() -> Iterator[Judged]:
    """A signal or an exit code and no more: nobody can tell, whatever the texts mostly mean by it."""
    signals = [Status(source="the shell", signal=one.name) for one in signal.Signals]
    codes = [Status(source="the shell", exit_code=code) for code in (0, 1, 2, 3)]
    for status in (*signals, *codes):
        case = Case(f"{status.signal or status.exit_code} alone", "shell", (), decidable=False, log="")
        yield case, diagnose(from_status(status), stated())


def kept_cases() -> Iterator[Judged]:
    """Of tests/cases: what is said first stays first."""
    for name in names():
        diagnosis = diagnose(evidence_of(name), stated())
        if diagnosis.best is not None:
            yield Case(name, "kept", (diagnosis.best.id,), decidable=True, log=""), diagnosis


def taken(judged: Sequence[Judged]) -> list[Finding]:
    """Those that are better on cases left out, together, without those that spoil a case."""
    good = [(case, one) for case, one in (*judged, *bare_endings(), *kept_cases()) if _is_good(case, one)]
    chosen = [found for found in findings(judged) if found.is_better and found.moved]
    while chosen:
        spoilers = _spoilers(good, chosen)
        if not spoilers:
            break
        chosen = [found for found in chosen if found.cause.id not in spoilers]
    return chosen


def _is_good(case: Case, diagnosis: Diagnosis) -> bool:
    return (is_right if case.decidable else is_honest)(case, diagnosis)


def _spoilers(good: Sequence[Judged], chosen: Sequence[Finding]) -> set[str]:
    """Causes whose new weights make a case worse that was good: what is claimed there now, else what fell."""
    causes, fitted = _changed(chosen), {found.cause.id for found in chosen}
    found: set[str] = set()
    for case, before in good:
        after = diagnose(before.evidence, causes)
        if not _is_good(case, after):
            claimed = {verdict.id for verdict in after.causes if verdict.confidence > SURE}
            fell = {before.best.id} if before.best is not None else set()
            found |= (claimed & fitted) or (fell & fitted) or fitted
    return found


def stated() -> list[Cause]:
    """All causes with the weights that were stated by hand."""
    by_hand: dict[str, Weights] = json.loads(STATED.read_text())
    return [
        dataclasses.replace(
            one, weights={name: by_hand.get(one.id, {}).get(name, now) for name, now in one.weights.items()}
        )
        for one in all_causes()
    ]


def _changed(chosen: Sequence[Finding]) -> list[Cause]:
    new = {found.cause.id: {name: to for name, (_, to) in found.moved.items()} for found in chosen}
    return [dataclasses.replace(one, weights={**one.weights, **new.get(one.id, {})}) for one in stated()]


def keep(chosen: Sequence[Finding]) -> None:
    """The weights into the files of the causes; what was stated, new reasons included, beside this script."""
    for now, new in zip(all_causes(), _changed(chosen), strict=True):
        changes = {name: to for name, to in new.weights.items() if now.weights[name] != to}
        if changes:
            write(now, changes)
    by_hand = {one.id: dict(one.weights) for one in stated() if one.id != REST}
    STATED.write_text(f"{json.dumps(by_hand, indent=2)}\n")


def write(cause: Cause, changes: Mapping[str, float]) -> None:
    file = ROOT / "src" / "lastwords" / "causes" / f"{cause.id.replace('-', '_')}.py"
    head, weights, tail = re.split(
        r"(    weights=\{\n.*?\n    \},\n)", file.read_text(), maxsplit=1, flags=re.DOTALL
    )
    for name, new in changes.items():
        key = {"signal_fits": "SIGNAL_FITS", "place_known": "PLACE_KNOWN"}.get(name, f'"{name}"')
        weights = re.sub(rf"(        {re.escape(key)}: )-?[\d.]+,", rf"\g<1>{new},", weights)
    file.write_text(head + weights + tail)


def main() -> int:
    from tools.calibrate import every_case

    # Two other versions are enough to learn from: what all six of them say hardly differs.
    by_hand = stated()
    cases = every_case([noise.prefixed, noise.shortened])
    judged = [(case, diagnose(one.evidence, by_hand)) for case, one in cases]
    chosen = taken(judged)
    for found in chosen:
        moves = ", ".join(f"{name} {old:+.1f} → {new:+.1f}" for name, (old, new) in found.moved.items())
        print(
            f"{found.cause.id}: {found.loss_now:.2f} → {found.loss_left_out:.2f} on cases left out: {moves}"
        )
    if "--apply" in sys.argv[1:]:
        keep(chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
