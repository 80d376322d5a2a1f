"""The sieve for large logs: it finds the one line that matters, knows its number, and is quick."""

from __future__ import annotations

import random
import time

import pytest

from lastwords.evidence.text import from_text
from lastwords.evidence.text.alarms import ALARMS
from lastwords.evidence.text.excerpt import SMALL, excerpt
from tests.corpus import own

# Beside their own line these never stand alone, or they add nothing that another line does not say.
BESIDE = {"importing", "exception", "native-frame", "exit", "cpu-lacks", "rebuilt", "memory-guess"}


def chatter(megabytes: float, seed: int = 1) -> bytes:
    chance = random.Random(seed)
    kinds = [
        lambda: (
            f"2031-01-02 03:04:{chance.randint(10, 59)} INFO step {chance.randint(1, 10**6)} loss {chance.random():.5f}"
        ),
        lambda: (
            f"\r {chance.randint(0, 99)}%|####    | {chance.randint(1, 999)}/1000 [00:01<00:09, {chance.random():.2f}it/s]"
        ),
        lambda: (
            f"10.0.0.{chance.randint(1, 99)} GET /shard/{chance.getrandbits(48):x} 200 {chance.randint(1, 10**5)}"
        ),
        lambda: " ".join(
            chance.choice(("batch", "loading", "table", "graph", "model", "of", "with")) for _ in range(8)
        ),
    ]
    block = "\n".join(chance.choice(kinds)() for _ in range(20_000)).encode()
    return (block + b"\n") * max(1, round(megabytes * 1e6 / len(block)))


@pytest.mark.parametrize("place", [0.02, 0.5, 0.97])
def test_one_line_in_many_megabytes(place: float):
    noise = chatter(12)
    at = noise.rfind(b"\n", 0, int(len(noise) * place)) + 1
    log = noise[:at] + b"NVRM: Xid (PCI:0000:81:00): 79, GPU has fallen off the bus.\n" + noise[at:]
    found = [one for one in from_text(log).mentions or () if one.kind == "hardware-error"]
    assert found
    assert found[0].line == log[:at].count(b"\n") + 1


def test_the_exit_code_is_not_lost_among_its_like():
    log = chatter(0.3) + b"".join(b"worker %d exited with code 0\n" % n for n in range(3000)) + chatter(0.3)
    at = log.rfind(b"worker 2990 exited")
    log = log[:at] + b"worker 77 exited with code 139\n" + log[at:]
    status = from_text(log).status
    assert status is not None
    assert status.signal == "SIGSEGV"


def test_a_log_with_an_alarm_word_on_every_line_hides_nothing():
    lines = [b"step %d loss 0.%d killed=0 oom=0\n" % (n, n % 977) for n in range(20_000)]
    lines[12_000] = b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    found = from_text(b"".join(lines)).mentions or ()
    assert [one.line for one in found if one.kind == "gpu-oom"] == [12_001]


def test_what_stands_above_an_exception_is_kept():
    traceback = (
        'Traceback (most recent call last):\n  File "/srv/a.py", line 3, in main\n    f()\nKeyError: 1\n'
    )
    exception = from_text(chatter(1) + traceback.encode() + chatter(1)).exception
    assert exception is not None
    assert [frame.file for frame in exception.frames] == ["/srv/a.py"]


def test_every_message_has_an_alarm_word():
    """Otherwise a large log would hide what a small one shows."""
    silent = []
    for case in own():
        mentions = [one for one in from_text(case.log).mentions or () if one.kind not in BESIDE]
        heard = [one for one in mentions if _is_heard(one.quote)]
        if mentions and not heard:
            silent.append(f"{case.name}: {mentions[0].quote}")
    assert len(silent) <= 0.02 * len(own()), "\n".join(silent)


def _is_heard(quote: str) -> bool:
    shape = quote.encode().translate(None, b"0123456789")
    return any(alarm.search(shape) for alarm in ALARMS)


def test_memory_is_bounded():
    lines = excerpt(
        chatter(4) + b"".join(b"Error %d: alarm %s\n" % (n, b"x" * (n % 97)) for n in range(60_000))
    ).lines
    assert len(lines) <= 12_000


@pytest.mark.slow
def test_a_hundred_megabytes_in_seconds():
    log = chatter(100)
    begun = time.process_time()
    from_text(log)
    assert time.process_time() - begun < 4, "two seconds on a machine that does nothing else"


def test_small_is_small():
    assert SMALL < 1 << 20
