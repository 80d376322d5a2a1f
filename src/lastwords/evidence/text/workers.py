"""Workers that are gone, in words that no single engine owns.

Readers are asked by the name of their file, and the first to speak of a line keeps it: an engine's own reader goes first.
"""

from __future__ import annotations

from lastwords.evidence.text.reader import Reader, says

READER = Reader(
    "a worker",
    (
        says("lost", "work-horse terminated", r"Work-horse (?:process )?(?:was )?terminated unexpectedly", by="RQ"),
        says("lost", "unexpectedly|abruptly", r"\b(?:proc|process|worker|engine|actor|executor|child|replica|shard|runner|rank|node|task)\b.{0,60}\b(?:died|dead|exited|crashed|vanished|disappeared|gone|terminated) (?:unexpectedly|abruptly)"),
        says("lost", "process (pid|process", r"\b(?:engine|worker|server|child|model|core|runner|stub|backend) process(?: \(?pid:? \d{1,9}\)?)? (?:has |was |is )?(?:died|dead|terminated|crashed|exited|gone)\b"),
        says("lost", "worker", r"\bworker (?:\S{1,20} )?(?:has )?(?:died|crashed)\b"),
        says("lost", "lost c", r"\b(?:runner|worker|agent|node|executor|machine|host)\b.{0,20} lost (?:communication|contact|connection) with (?:the )?(?:server|service|master|controller)"),
    ),
)  # fmt: skip
