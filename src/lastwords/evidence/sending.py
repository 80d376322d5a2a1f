"""Sends what waits in the outbox, in a process of its own: a place that is away, or a mount that is dead, can then
hold nobody but that.

    python -m lastwords.evidence.sending HOME [--patiently]
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from lastwords.evidence import places
from lastwords.evidence.model import Evidence
from lastwords.evidence.outbox import Box, Outbox
from lastwords.evidence.travel import masked

DEADLINE = 60.0
"""Seconds without a death delivered, after which a sender ends."""
WAIT = 5.0
"""Seconds that the end of a job in which something died may take for it, unless LASTWORDS_COLLECT_WAIT says others. A
container ends with its first process, and with it all that waits inside."""
GLANCE = 0.01
# The shell stands between us and the sender, and ends well whatever becomes of that: `lastwords run` takes in orphans,
# and would report a sender that was killed as a death of the job.
_SHELL = '"$0" "$@"; exit 0'


def post(home: str | os.PathLike[str], url: str, evidence: Evidence) -> None:
    """Into the outbox, and a sender on its way. Never raises, and never looks at the place itself."""
    outbox = Outbox(home)
    with contextlib.suppress(OSError, ValueError):
        outbox.add(url, evidence)
        if outbox.is_worth_a_try():
            start(home)


_senders: list[subprocess.Popen[bytes]] = []


def start(home: str | os.PathLike[str], *, patiently: bool = False) -> subprocess.Popen[bytes] | None:
    """None: no process can be started here, and what waits goes on waiting."""
    _senders[:] = [one for one in _senders if one.poll() is None]
    words = [sys.executable, "-m", __name__, os.fspath(home), *(["--patiently"] if patiently else [])]
    # It is not recorded itself.
    variables = {name: value for name, value in os.environ.items() if name != "LASTWORDS"}
    try:
        sender = subprocess.Popen(
            ["/bin/sh", "-c", _SHELL, *words],
            env=variables,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    _senders.append(sender)
    return sender


def finish(home: str | os.PathLike[str], *, program: str, waits: bool) -> list[str]:
    """At the end of a job: what waits is sent, now or by the next job. What to say of it, in lines."""
    outbox = Outbox(home)
    if outbox.is_empty():
        return []
    sender = start(home, patiently=True)
    if not waits:
        return []
    if sender is not None:
        _wait(sender)
    return [f"{words(box)} · next: {program} collect --send" for box in outbox.boxes() if box.waiting()]


def _wait(sender: subprocess.Popen[bytes]) -> None:
    """Whoever tells us to stop tells us to stop waiting: the job is over, and we end as it did."""
    enough = threading.Event()
    stops = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.signal(number, lambda *_: enough.set()) for number in stops}
    until = time.monotonic() + _patience()
    try:
        while sender.poll() is None and time.monotonic() < until and not enough.wait(GLANCE):
            pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _patience() -> float:
    try:
        return float(os.environ["LASTWORDS_COLLECT_WAIT"])
    except (KeyError, ValueError):
        return WAIT


def words(box: Box) -> str:
    """`2 deaths wait to be collected in /mnt/deaths: there is no such directory`"""
    many = len(box.waiting())
    what = f"{many} deaths wait" if many > 1 else "1 death waits"
    return f"{what} to be collected in {masked(box.url)}: {box.refused or 'it has not answered yet'}"


def send(home: str | os.PathLike[str]) -> bool:
    """For a user who waits for it; False: somebody hangs on a place, and we no longer wait for that."""
    outbox, sender = Outbox(home), start(home, patiently=True)
    many, until = -1, 0.0
    while sender is not None and sender.poll() is None:
        left = sum(len(box.waiting()) for box in outbox.boxes())
        if left != many:
            many, until = left, time.monotonic() + DEADLINE + WAIT
        elif time.monotonic() > until:
            return False
        time.sleep(GLANCE)
    return sender is not None


# In the sender.


def send_all(outbox: Outbox, on_progress: Callable[[], None] = lambda: None) -> None:
    """What a place refuses stays where it is, with the reason."""
    for box in outbox.boxes():
        _send_box(box, on_progress)


def _send_box(box: Box, on_progress: Callable[[], None]) -> None:
    try:
        place = places.open_place(box.url)
        for path in box.waiting():
            _send(place, path)
            on_progress()
    except places.PlaceAway as away:
        box.say_refused(f"{away}{f' ({away.then})' if away.then else ''}")
    else:
        box.forget_refusal()


def _send(place: places.Place, path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):  # dropped for want of room meanwhile
        with path.open("rb") as file:
            sent = os.fstat(file.fileno())
            place.put(path.name, file.read())
        # A death that has learnt something meanwhile lies under the same name, and is still to be sent.
        if os.path.samestat(sent, path.stat()):
            path.unlink()


def main() -> None:
    home, *more = sys.argv[1:]
    # `lastwords run` has all signals blocked, and what is blocked stays so in those that it starts.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _let_us_be_the_first_to_go()
    watchdog = _Watchdog()
    outbox, patiently = Outbox(home), "--patiently" in more
    is_ours = True
    while is_ours:
        with outbox.sending(patiently=patiently) as is_ours:
            if is_ours:
                send_all(outbox, watchdog.reset)
        # Whoever came while we sent saw the lock and left, and what he came for may be news to us.
        is_ours = is_ours and outbox.is_worth_a_try()
    os._exit(0)  # threads of a store's client may wait for an answer that never comes


class _Watchdog:
    """Ends this process when nothing has been delivered for too long: a store that is away may not answer at all."""

    def __init__(self) -> None:
        self.reset()
        threading.Thread(target=self._watch, daemon=True).start()

    def reset(self) -> None:
        self._until = time.monotonic() + DEADLINE

    def _watch(self) -> None:
        while (left := self._until - time.monotonic()) > 0:
            time.sleep(left)
        os._exit(0)


def _let_us_be_the_first_to_go() -> None:
    """The job may have just been killed for want of memory. Better that the kernel takes us than another worker."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


if __name__ == "__main__":
    main()
