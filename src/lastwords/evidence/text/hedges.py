"""Lines that have the words of a death and say nothing of this one: guesses, printed settings, troubles that were got over."""

from __future__ import annotations

import re
from functools import lru_cache

# From here to the end of the line stand the reasons that somebody could think of.
_LIST = re.compile(
    r"(?:common|possible|potential|root|usual|typical|likely) (?:root )?(?:causes?|reasons?)|(?:causes?|reasons?) (?:\w{1,12} )?include"
    r"|can (?:happen|occur|be caused|be due)|could be (?:caused|due|because)|one of (?:these|the following) reasons",
    re.IGNORECASE,
)
_WEAK = re.compile(
    r"\b(?:may|might|could|would) (?:also |well )?(?:be|have|indicate|mean|lead|cause|result|occur)\b|\b(?:possibl[ey]|perhaps|potential(?:ly)?|probabl[ey]|maybe"
    r"|usually|typically|often|generally|commonly|(?:most )?likely)\b|\bis possible that\b|\beither\b.{1,120}\bor\b|\bif\b|\be\.g\.|\bfor example\b|\bsuch as\b",
    re.IGNORECASE,
)
# What a user had thought of, and a node or pod that is well and says so in the words of one that is not: for `unless`.
SUSPECTED = r"\bI (?:\w{1,12} )?(?:suspect|thought|guess|assume|wonder)"
NODE_IS_WELL = r"Pressure\W{1,24}(?:status\W{0,4})?False|KubeletHas(?:Sufficient|NoDisk)|pressure:No(?:Schedule|Execute)|op=Exists"
# Windows' error 1455, in the language of the user: what could not be loaded for it is there.
PAGING_FILE = (
    r"WinError 1455|paging file is too small|Auslagerungsdatei ist zu klein|页面文件太小|頁面檔太小|fichier de pagination est insuffisant"
    r"|archivo de paginación es demasiado pequeño|arquivo de paginação é muito pequeno|Файл подкачки слишком мал|ページング ?ファイルが小さすぎ"
)
_SENTENCE = re.compile(r"(?<=[.;!?)]) {1,4}(?=[A-Z(])")
_NUMBERED = re.compile(r"^\W{0,8}\d\)")
_SETTINGS = re.compile(
    r"\b(?:config\w{0,12}|cfg|settings|args|arguments|h?params|hyperparameters|options|environ\w{0,8})[\"']?\s?[:=]\s?(?:\w{0,20})[{(\[]"
    r"|\bNamespace\(",
    re.IGNORECASE,
)
MOST_SETTINGS = 8
REMEMBERED = 512
"""Lines: every pattern asks about the same few again."""
_GOES_ON = re.compile(
    r"\bfall(?:s|ing)? ?back\b|\bretry(?:ing)?\b|\bskip(?:s|ped|ping)\b|\bignor(?:ed|ing)\b|\bcontinuing\b"
    r"|\bwill (?:be disabled|not be (?:enabled|available|used))|\bwon't be (?:enabled|available|used)|\busing .{1,40} instead\b",
    re.IGNORECASE,
)
# The level of the line, as loggers and glog print it. NCCL's WARN, behind file and line, is the level of its errors.
_WARNING = re.compile(
    r"(?<!NCCL )(?<!\.h:\d\d )(?<!\d\d\d )\bWARN(?:ING)?\b|\b\w{0,20}Warning: |(?:^|\[|\s)W(?:\d{4})? [\w./]{1,120}\.(?:cc|cpp|h|go|py):\d"
)


@lru_cache(maxsize=REMEMBERED)
def certain(text: str, above: str = "") -> str:
    """The sentences of a line that do not guess. `above` is the line before it: a list may begin there."""
    if _NUMBERED.match(text) and _LIST.search(above):
        return ""
    listed = _LIST.search(text)
    stated = text[: listed.start()] if listed else text
    if _WEAK.search(stated) is None:
        return stated
    return " ".join(one for one in _SENTENCE.split(stated) if _WEAK.search(one) is None)


def goes_on(text: str) -> bool:
    """The line itself says that the program lives with it."""
    return _GOES_ON.search(text) is not None


def is_warning(text: str) -> bool:
    return _WARNING.search(text) is not None


def is_setting(text: str, at: int) -> bool:
    """Whether this place of the line is inside the brackets of a printed configuration."""
    return any(start <= at < end for start, end in _settings(text))


@lru_cache(maxsize=REMEMBERED)
def _settings(text: str) -> tuple[tuple[int, int], ...]:
    """Where each begins and ends; one that is cut off goes to the end of the line."""
    found = (one for _, one in zip(range(MOST_SETTINGS), _SETTINGS.finditer(text), strict=False))
    return tuple((one.end() - 1, _closed(text, one.end() - 1)) for one in found)


def _closed(text: str, start: int) -> int:
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth == 0:
            return at + 1
    return len(text)
