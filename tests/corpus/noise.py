"""The same death told otherwise: other numbers, hosts and paths, prefixes, colours, progress bars, lines around it."""

from __future__ import annotations

import random
import re

from tests.corpus import Case

PREFIXES = (
    "2031-04-05 06:07:{:02d},123 ",
    "[rank{}]: ",
    "({}) worker-7 | ",
    "I0405 06:07:{:02d}.000001 99 ",
    "\x1b[36m(RayWorker pid={})\x1b[0m ",
    "trainer-{}-xkq8 main ",
)
CHATTER = (
    "epoch {} step {} loss 0.{} lr 1e-{}",
    "INFO checkpoint {} saved in {} s, {} MB, shard {}",
    "GET /health HTTP/1.1 200 {} {} {} {}",
    "DEBUG cache hit {} miss {} size {} age {}",
    "\r {}%|####      | {}/{} [00:0{}<00:30, 9.8it/s]",
)
# Numbers that mean something: codes, signals, errno, addresses, versions, percentages, Xids, bank numbers.
_FREE_NUMBER = re.compile(r"(?<![\w.\-:#=/(%\[])(\d{4,7})(?![\w.%:])")
_PID = re.compile(r"((?:pid|PID|JOB|Job|StepId)[ :=(]{1,2})(\d{2,9})")
_PATH = re.compile(r"/(?:srv|x|app|opt/env|home/u)/")


def reworded(case: Case, seed: int) -> str:
    """Other process numbers, sizes and places."""
    chance = random.Random(f"{case.name}{seed}")
    text = _PID.sub(lambda match: f"{match[1]}{chance.randint(1000, 4_000_000)}", case.log)
    text = _FREE_NUMBER.sub(
        lambda match: str(chance.randint(10 ** (len(match[1]) - 1), 9 * 10 ** (len(match[1]) - 1))), text
    )
    return _PATH.sub(f"/mnt/team{seed}/project/", text)


def prefixed(case: Case, seed: int) -> str:
    """Behind what collectors of logs put in front of each line."""
    chance = random.Random(f"{case.name}{seed}")
    prefix = chance.choice(PREFIXES).format(chance.randint(1, 50))
    return "\n".join(prefix + line for line in reworded(case, seed).split("\n"))


def coloured(case: Case, seed: int) -> str:
    chance = random.Random(f"{case.name}{seed}")
    lines = reworded(case, seed).split("\n")
    return "\n".join(f"\x1b[{chance.choice((1, 31, 33))}m{line}\x1b[0m" for line in lines)


def chatter(chance: random.Random, count: int) -> list[str]:
    numbers = (chance.randint(1, 999) for _ in iter(int, 1))
    return [chance.choice(CHATTER).format(*(next(numbers) for _ in range(4))) for _ in range(count)]


def surrounded(case: Case, seed: int, lines: int = 400) -> str:
    """In the middle of a healthy log, with some of its lines between."""
    chance = random.Random(f"{case.name}{seed}")
    before, after = chatter(chance, lines), chatter(chance, lines // 4)
    return "\n".join([*before, reworded(case, seed), *after])


def drowned(case: Case, seed: int) -> str:
    """In some megabytes."""
    return surrounded(case, seed, lines=40_000)


def shortened(case: Case, seed: int) -> str:
    """Without the lines that decide nothing; the rest in their order."""
    if not case.decisive:
        return reworded(case, seed)
    kept = [
        line
        for line in case.log.split("\n")
        if any(one.strip() and one.strip() in line for one in case.decisive)
    ]
    return "\n".join(kept) if kept else case.log


def as_json(case: Case, seed: int) -> str:
    """As a container runtime keeps it: one JSON object for each line."""
    return "\n".join(
        f'{{"log":"{line.replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}\\n","stream":"stderr"}}'
        for line in reworded(case, seed).split("\n")
    )


CHANGES = (reworded, prefixed, coloured, surrounded, shortened)
