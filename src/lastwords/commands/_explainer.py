"""Explains deaths on standard error while the job runs. Whatever fails here, the job goes on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lastwords.diagnosis import Diagnosis
    from lastwords.evidence import Evidence, OomKills
    from lastwords.watch.ending import Ended
    from lastwords.watch.hangs import Hung
    from lastwords.watch.leftovers import Leftover
    from lastwords.watch.loop import Outcome

# A pool that replaces its workers can lose a thousand of them in a minute; nobody reads a thousand panels.
MOST_PANELS = 10


class Explainer:
    def __init__(self, home: str, *, quiet: bool, program: str) -> None:
        self._home = home
        self._quiet = quiet
        self.program = program
        self.ids: list[str] = []
        """Of the deaths that were kept, in order."""
        self.passed_alone: list[str] = []
        """Of those whose item passed when the job tried it again alone."""

    def explain(self, ended: Ended, related: Sequence[str]) -> bool:
        """Keeps the death and shows it; False if it could not be kept."""
        try:
            diagnosis = _keep(self._home, ended, related)
        except Exception as error:  # noqa: BLE001  # a fault of ours must not end the job
            say(f"pid {ended.process.pid} died ({ended.words}), and explaining it failed: {_words(error)}")
            return False
        self.ids.append(diagnosis.evidence.id)
        if not self._quiet and sys.stderr is not None:  # None: the job was started with it closed
            try:
                self._show(diagnosis)
            except Exception as error:  # noqa: BLE001  # the terminal may be gone; the death is kept
                say(f"pid {ended.process.pid} died ({ended.words}), and showing it failed: {_words(error)}")
        return True

    def explain_hang(self, hung: Hung) -> bool:
        """Keeps the hang as if it were a death, and shows it; False if it could not be kept."""
        try:
            diagnosis = _keep_hang(self._home, hung)
        except Exception as error:  # noqa: BLE001  # a fault of ours must not end the job
            say(f"pid {hung.process.pid} hangs, and explaining it failed: {_words(error)}")
            return False
        self.ids.append(diagnosis.evidence.id)
        if not self._quiet and sys.stderr is not None:
            try:
                self._show(diagnosis)
            except Exception as error:  # noqa: BLE001  # the terminal may be gone; the hang is kept
                say(f"pid {hung.process.pid} hangs, and showing it failed: {_words(error)}")
        return True

    def learn(self, directory: str) -> None:
        """What the job itself found out about its deaths: it leaves notes in the run's directory."""
        from lastwords.endings import PASSED
        from lastwords.evidence import alone
        from lastwords.evidence.store import Store

        try:
            notes, store = list(alone.taken(directory)), Store(self._home)
            deaths = [store.get(one) for one in self.ids] if notes else []
            for note, death in ((note, alone.about(note, deaths)) for note in notes):
                if death is not None:
                    store.learn(death.id, note.found)
                    self.passed_alone += [death.id] if note.found.outcome == PASSED else []
        except Exception as error:  # noqa: BLE001  # the deaths stay as they were kept, and the job ends as it ended
            say(f"what became of items that were tried again could not be kept: {_words(error)}")

    def write_page(self, file: str) -> None:
        """All deaths that were kept, on one page. What goes wrong is said, and the job's status stays its own."""
        from pathlib import Path

        from lastwords.commands._page import write_page
        from lastwords.diagnosis import diagnose
        from lastwords.evidence.store import Store

        try:
            store = Store(Path(self._home))
            write_page(Path(file), [diagnose(store.get(one)) for one in self.ids], program=self.program)
        except Exception as error:  # noqa: BLE001  # the job is over, and ends as it ended
            say(f"cannot write {file}: {getattr(error, 'strerror', None) or _words(error)}")
        else:
            say(f"wrote {file}")

    def _show(self, diagnosis: Diagnosis) -> None:
        from lastwords.show import text

        if len(self.ids) <= MOST_PANELS:
            text.show(diagnosis, stream=sys.stderr, program=self.program)
        elif len(self.ids) == MOST_PANELS + 1:
            say(f"more than {MOST_PANELS} deaths in this job: the others are kept, and not shown here")


def closing_lines(outcome: Outcome, explainer: Explainer) -> list[str]:
    lines, ids = [], explainer.ids
    if outcome.deaths or outcome.hangs:
        counts = [_count(outcome.deaths, "death"), _count(outcome.hangs, "hang")]
        then = f"; the job then ended with {outcome.consequences[-1].words}" if outcome.consequences else ""
        after = f" · next: {explainer.program} {_next_command(ids)}" if ids else ""
        lines.append(f"{' and '.join(filter(None, counts))} in this job{then}{after}")
    if explainer.passed_alone:
        lines.append(_passed_alone(explainer))
    lines += [f"the box of pid {one.process.pid} is kept: {one.process.box}" for one in outcome.unexplained]
    if outcome.still_running:
        pids = ", ".join(str(process.pid) for process in outcome.still_running[:8])
        lines.append(f"still running, and no longer watched: pid {pids}")
    files = [one for one in outcome.leftovers if one.kind != "process"]
    if files:
        lines.append(f"{_left_behind(files)} · to remove: {explainer.program} clean")
    return lines


def _passed_alone(explainer: Explainer) -> str:
    ids = explainer.passed_alone
    many = f"{len(ids)} items that killed a worker" if len(ids) > 1 else "an item that killed a worker"
    return f"{many} passed when run again alone · next: {explainer.program} show {ids[0]}"


def _left_behind(files: Sequence[Leftover]) -> str:
    from lastwords.evidence.quantities import size

    names = ", ".join(one.name for one in files[:3]) + (", …" if len(files) > 3 else "")
    many = f"{len(files)} things" if len(files) > 1 else "something"
    return f"left behind in shared memory: {many}, {size(sum(one.size or 0 for one in files))}: {names}"


def _count(found: Sequence[object], word: str) -> str:
    return f"{len(found)} {word}{'s' if len(found) > 1 else ''}" if found else ""


def _next_command(ids: Sequence[str]) -> str:
    return f"show {ids[0]}" if len(ids) == 1 else "list"


def say(line: str) -> None:
    """One line to standard error; nobody there to read it is no reason to fail."""
    try:
        sys.stderr.write(f"lastwords: {line}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return


def _words(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _keep(home: str, ended: Ended, related: Sequence[str]) -> Diagnosis:
    from pathlib import Path

    import msgspec

    from lastwords.diagnosis import diagnose
    from lastwords.evidence import box
    from lastwords.evidence.growth import Shared, with_growth
    from lastwords.evidence.life import parent_end
    from lastwords.evidence.machine import with_machine
    from lastwords.evidence.ordered import with_orders
    from lastwords.evidence.store import Store

    counts = (ended.seen.descriptors, ended.seen.threads)
    evidence = with_machine(_evidence(ended, related), ended.machine, counts)
    evidence = with_orders(evidence, ended.orders)
    record = (
        box.read(ended.process.box) if ended.process.box is not None and ended.state is not None else None
    )
    shared = Shared(ended.shares, ended.sharers)
    evidence = with_growth(evidence, record, ended.seen.memory, ended.seen.looks, ended.siblings, shared)
    if ended.parent_end is not None:
        parent = ended.parent_end
        found = parent_end(parent.pid, parent.seconds_before, parent.status.raw)
        evidence = msgspec.structs.replace(evidence, parent_end=found)
    return diagnose(Store(Path(home)).put(evidence, ended.process.box))


def _keep_hang(home: str, hung: Hung) -> Diagnosis:
    """Its box stays where it is: the process goes on writing it."""
    from pathlib import Path

    from lastwords.diagnosis import diagnose
    from lastwords.evidence.hang import from_hang
    from lastwords.evidence.store import Store

    return diagnose(Store(Path(home)).put(from_hang(hung)))


def _evidence(ended: Ended, related: Sequence[str]) -> Evidence:
    from lastwords.evidence import Process, Status, box, from_box, from_status
    from lastwords.evidence.hang import with_last_look
    from lastwords.evidence.memory import from_curve
    from lastwords.evidence.status import from_wait_status

    process, raw = ended.process, ended.status.raw
    source = ended.status.source
    status = from_wait_status(raw, source) if raw is not None else Status(source=source)
    oom_kills = _oom_kills(ended)
    if process.box is not None and ended.state is not None:
        curve = from_curve(ended.seen.memory, box.read(process.box), died_ns=ended.noticed_ns)
        evidence = from_box(
            process.box,
            status,
            related,
            time=ended.time,
            died_ns=ended.noticed_ns,
            memory=curve,
            oom_kills=oom_kills,
        )
        return with_last_look(evidence, ended.probe)
    who = Process(source="lastwords run", pid=process.pid, parent=process.parent)
    memory = from_curve(ended.seen.memory, died_ns=ended.noticed_ns)
    return from_status(status, process=who, time=ended.time, memory=memory, oom_kills=oom_kills)


def _oom_kills(ended: Ended) -> OomKills | None:
    from lastwords.evidence import OomKills

    found = ended.memory_kills
    if found is None:
        return None
    return OomKills(
        source="its cgroup's oom_kill counter", before=found.before, after=found.after, cgroup=found.cgroup
    )
