"""The look at a machine before `lastwords run` starts a job on it."""

from __future__ import annotations

import os
import subprocess
import sys

from lastwords.commands._explainer import say
from lastwords.prevent import doctor
from lastwords.prevent.finding import Finding
from lastwords.prevent.job import Job
from lastwords.prevent.patient import Patient

SHOWN = ("kills", "risk")
FIT, UNFIT = 0, 1


def may_start(home: str) -> bool:
    """Looks in a process of its own: a scan starts threads, and those would take signals that the job must get.

    Seen: SIGCHLD went to one of them, and `lastwords run` waited for ever. A look that fails keeps nothing from starting.
    """
    words = [sys.executable, "-m", __name__, home]
    status = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode
    if status not in (FIT, UNFIT):
        say(f"the preflight ended with {status}, and says nothing about this machine")
    return status != UNFIT


def is_fit(home: str) -> bool:
    """Says what it finds. Nothing is supposed of the job: only what would kill any job keeps one from starting."""
    any_job = Job(source="given", words="any job", workers=0)
    patient = Patient(home, asks_interpreter=False)
    report = doctor.examine(patient, any_job, os.uname().nodename)
    for finding in report.findings:
        if finding.severity in SHOWN:
            say(_line(finding))
    if report.would_kill:
        say(
            "the job was not started · see: lastwords doctor · to start it all the same: leave --preflight out"
        )
    return not report.would_kill


def _line(finding: Finding) -> str:
    from lastwords.show.clean import clean

    fix = finding.fixes[0] if finding.fixes else None
    after = f" · {fix.text}{f': {fix.command}' if fix.command else ''}" if fix else ""
    return clean(f"{'✗' if finding.severity == 'kills' else '!'} {finding.says}{after}")


if __name__ == "__main__":
    sys.exit(FIT if is_fit(sys.argv[1]) else UNFIT)
