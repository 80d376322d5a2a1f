"""`make new-cause NAME=some-id`: the cause's file, a zoo case that it must explain and a near miss that it must not.

What it writes runs, and says nothing yet: the tests tell what is still to be filled in.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CAUSE = '''"""TODO: what happened, in one sentence.

TODO: how a process comes to die like this, how it can be told from what looks alike, and where it was seen.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.words import not_this_signal
from lastwords.evidence.model import Evidence


def judge(evidence: Evidence) -> Iterator[Reason]:
    """Every reason for and against. Any field of the evidence may be None: not collected is no reason at all."""
    yield from not_this_signal(evidence, "SIGSEGV")  # TODO: the signal it comes with, or drop the line
    # TODO: yield Reason("name_of_the_sign", "what was seen, with its numbers")


def sentence(evidence: Evidence) -> str:
    """The one sentence that a reader gets first."""
    del evidence  # TODO: name the function, the file or the number that makes it this death
    return "TODO."


def facts(evidence: Evidence) -> Facts:
    del evidence  # TODO: what a program would ask for
    return {}


def remedy(evidence: Evidence) -> Iterator[Step]:
    del evidence  # TODO: the surest step first; a command must run as it stands
    yield Step(text="TODO: what to do")


CAUSE = Cause(
    id="@ID@",
    title="TODO: What happened, in a few words",
    doc=__doc__,
    needs=("fault",),
    prior=-3.0,
    weights={
        # In log-odds: above zero for, below zero against. 5 decides nearly alone.
        "other_ending": -1.5,
        "other_signal": -8.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("@ID@",),
    near_misses=("@ID@-near-miss",),
)
'''

DEATH = '''"""TODO: how it dies, in one sentence."""


def die(item: int) -> None:
    raise NotImplementedError("TODO: die of @ID@ here, at once and every time")
'''

NEAR_MISS = '''"""TODO: a death that looks like @ID@ and is another one."""


def die(item: int) -> None:
    raise NotImplementedError("TODO: die of what looks like @ID@ and is not")
'''

EXPECT = """{
  "cause": "@ID@",
  "signal": "SIGSEGV",
  "facts": {},
  "needs": []
}
"""

EXPECT_NEAR_MISS = EXPECT.replace("@ID@", "unknown")

NEXT = """
Next:
  1. make the death:       zoo/@ID@/death.py, and what must be said of it in expect.json
  2. watch it:             .venv/bin/python -m zoo @ID@ --job plain
  3. write the cause:      @FILE@ (every TODO)
  4. make the near miss:   zoo/@ID@-near-miss/, with the cause that is the true one
                           (or delete it and name an animal of the zoo in near_misses)
  5. make docs test-fast
"""


def files_for(name: str) -> dict[str, str]:
    module = name.replace("-", "_")
    return {
        f"src/lastwords/causes/{module}.py": CAUSE,
        f"zoo/{name}/death.py": DEATH,
        f"zoo/{name}/expect.json": EXPECT,
        f"zoo/{name}-near-miss/death.py": NEAR_MISS,
        f"zoo/{name}-near-miss/expect.json": EXPECT_NEAR_MISS,
    }


def problem(name: str) -> str | None:
    if not name:
        return "which one? make new-cause NAME=some-id"
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        return (
            f"a cause's id is lower case, words joined by hyphens, not {name!r}: make new-cause NAME=some-id"
        )
    there = [path for path in files_for(name) if (ROOT / path).exists()]
    return f"there is already {there[0]}" if there else None


def main() -> int:
    name = sys.argv[1] if len(sys.argv) == 2 else ""
    if wrong := problem(name):
        print(f"lastwords: {wrong}", file=sys.stderr)
        return 2
    for path, text in files_for(name).items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text.replace("@ID@", name))
        print(f"made {path}")
    cause = next(iter(files_for(name)))
    print(NEXT.replace("@ID@", name).replace("@FILE@", cause), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
