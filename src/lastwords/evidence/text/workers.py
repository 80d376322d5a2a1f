"""Workers that are gone, in words that no single engine owns.

Readers are asked by the name of their file, and the first to speak of a line keeps it: an engine's own reader goes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.evidence.model import Mention
from lastwords.evidence.text.echoes import is_echo
from lastwords.evidence.text.excerpt import Excerpt
from lastwords.evidence.text.python_traceback import raised
from lastwords.evidence.text.reader import Reader, mention, says

# Who ends itself because a signal told it to has been told.
_TOLD = re.compile(r"signal|sig(?:term|int|abrt|quit)|handle|abort|shutdown", re.IGNORECASE)


def _left(excerpt: Excerpt) -> Iterator[Mention]:
    """Engines print the traceback of a `sys.exit()` in a task, and then that a worker died."""
    found = raised(excerpt)
    if not all(is_echo(one.kind, one.message) for one in found):
        return  # and then that is the reason, and this is how the program leaves
    for one in found:
        asked = one.kind == "SystemExit" and one.message.strip() not in ("", "0", "None")
        if asked and one.frames and not any(_TOLD.search(frame.function) for frame in one.frames[:2]):
            yield mention("worker-exited", excerpt, one.at, "a worker", {"code": one.message.strip()})


READER = Reader(
    "a worker",
    (
        says("lost", "work-horse terminated", r"Work-horse (?:process )?(?:was )?terminated unexpectedly", by="RQ"),
        says("lost", "unexpectedly|abruptly", r"\b(?:proc|process|worker|engine|actor|executor|child|replica|shard|runner|rank|node|task)\b.{0,60}\b(?:died|dead|exited|crashed|vanished|disappeared|gone|terminated) (?:unexpectedly|abruptly)"),
        says("lost", "process (pid|process", r"\b(?:engine|worker|server|child|model|core|runner|stub|backend) process(?: \(?pid:? \d{1,9}\)?)? (?:has |was |is )?(?:died|dead|terminated|crashed|exited|gone)\b"),
        says("lost", "worker", r"\bworker (?:\S{1,20} )?(?:has )?(?:died|crashed)\b"),
        says("lost", "lost c", r"\b(?:runner|worker|agent|node|executor|machine|host)\b.{0,20} lost (?:communication|contact|connection) with (?:the )?(?:server|service|master|controller)"),
        says("lost", "lost connection", r"\blost connection (?:to|with) (?:the |a )?(?:worker|actor|executor|child|rank|task|process)"),
        says("work-timeout", "watchdog", r"\bwatchdog(?: timer)?:? (?:timeout|timed out|expired|fired)\b", by="a watchdog"),
        says("work-timeout", "timed out", r"\b(?:worker|thread|process|subprocess|prefetcher|loader|child|rank)\b[^:]{0,40}\btimed out (?:after|at|in) (?P<seconds>\d[\d.]{0,9}) ?(?:s|secs?|seconds|min|minutes|h|hours)\b", unless=r"\bconnect|\bhttps?:", by="whoever waited for it"),
        says("stop-request", "sigint|sighup", r"\b(?:received|caught|got) (?:signal )?SIG(?:INT|HUP)\b", unless=r"from (?:a |the )?(?:child|worker)", by="a signal"),
        says("stop-request", " signal", r"\b(?:stop|shutdown|termination|interrupt|quit) signal (?:was |has been )?(?:received|caught)|\b(?:received|caught|got) (?:a |the )?(?:stop|shutdown|termination|interrupt|quit) signal", by="a signal"),
        says("stop-request", "termination signal", r"(?:abort|terminat|stopp|interrupt|kill|end)ed (?:by|due to|because of|on|after) (?:a |the )?termination signal", by="a signal"),
        says("stop-request", "execution was", r"Execution was (?:terminated|cancelled|canceled|interrupted) by (?:the |a )?(?:runtime|system|SIGTERM|signal)", by="a signal"),
    ),
    _left,
)  # fmt: skip
