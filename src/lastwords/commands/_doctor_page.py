"""The doctor's page: worst first, each finding with what was measured and its fix; what is fine, in one line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from lastwords.prevent.doctor import Report
from lastwords.prevent.finding import Finding, Fix
from lastwords.show.clean import clean
from lastwords.show.text import STYLES, fold, paint

SIGNS = {"kills": ("✗", "bad"), "risk": ("!", "warn"), "slow": ("~", "warn"), "note": ("·", "plain")}
WORDS = (("kills", "would kill the job"), ("risk", "may"), ("slow", "slow it down"))


def render(report: Report, explained: Sequence[str], *, width: int, colour: bool) -> str:
    return paint(_lines(report, explained, width), colour=colour)


def _lines(report: Report, explained: Sequence[str], width: int) -> Iterator[Text]:
    yield from fold(headline(report), "title", width, first="")
    yield from fold(clean(_judged_for(report)), "dim", width, first="")
    for finding in report.findings:
        if finding.severity != "fine":
            yield Text()
            yield from _finding(finding, width)
            if finding.check == "first-batches":
                for line in explained:
                    yield from fold(clean(line), "strong", width, first="    ")
    yield from _recommended(report, width)
    yield from _fine(report, width)
    yield from _not_checked(report, width)


def headline(report: Report) -> str:
    counts = [(sum(one.severity == kind for one in report.findings), words) for kind, words in WORDS]
    said = ", ".join(f"{count} {words}" for count, words in counts if count)
    return f"{clean(report.host)}: {said or 'nothing found that would hurt the job'}"


def _judged_for(report: Report) -> str:
    job = report.job
    if job.source == "measured":
        return f"judged by the job itself: {job.words}"
    return f"judged for {job.words} · better, by the job itself: lastwords doctor -- python train.py"


def _finding(finding: Finding, width: int) -> Iterator[Text]:
    sign, tone = SIGNS[finding.severity]
    yield from fold(clean(finding.says), "bad" if tone == "bad" else "strong", width, first=f"{sign} ")
    for line in finding.measured:
        yield from fold(clean(line), "dim", width, first="    ")
    for fix in finding.fixes:
        yield from _fix(fix, width)


def _fix(fix: Fix, width: int) -> Iterator[Text]:
    yield from fold(clean(fix.text), "plain", width, first="  → ")
    if fix.command:
        # Not folded: a command is copied as it stands.
        yield Text(f"      {clean(fix.command)}", style=STYLES["command"])


def _recommended(report: Report, width: int) -> Iterator[Text]:
    from lastwords.prevent import sizes

    best = report.recommended
    if best is None:
        return
    yield Text()
    yield Text("Recommended for this job, here", style=STYLES["title"])
    yield Text(
        f"    num_workers={best.num_workers}  prefetch_factor={best.prefetch_factor}  "
        f"batches in flight {best.batches_in_flight}",
        style=STYLES["command"],
    )
    text = f"memory limit {sizes.words(best.memory_limit)}, /dev/shm {sizes.words(best.shared_memory)}"
    yield from fold(text, "plain", width, first="    ")
    for line in best.arithmetic:
        yield from fold(clean(line), "dim", width, first="    ", rest="      ")


def _fine(report: Report, width: int) -> Iterator[Text]:
    good = [finding for finding in report.findings if finding.severity == "fine"]
    if not good:
        return
    yield Text()
    yield Text("Fine", style=STYLES["title"])
    for finding in good:
        yield from fold(clean(finding.says), "plain", width, first="    ", rest="      ")


def _not_checked(report: Report, width: int) -> Iterator[Text]:
    if not report.not_checked:
        return
    yield Text()
    yield Text("Not looked at", style=STYLES["title"])
    for line in report.not_checked:
        yield from fold(clean(line), "warn", width, first="    ", rest="      ")
