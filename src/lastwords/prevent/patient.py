"""Whom the checks look at: this machine, an interpreter on it and, where there is one, a job that was tried."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field

from lastwords.prevent import interpreter
from lastwords.prevent.interpreter import Interpreter
from lastwords.prevent.measured import Trial
from lastwords.prevent.scan_model import Library


@dataclass(slots=True)
class Patient:
    home: str
    directory: str = field(default_factory=os.getcwd)
    """Where the job runs."""
    trial: Trial | None = None
    asks_interpreter: bool = True
    """Importing torch takes seconds."""
    scans: bool = True
    _interpreter: Interpreter | None = None
    _scan: Future[list[Library]] | None = None

    @property
    def interpreter(self) -> Interpreter | None:
        """Asked once, and only if somebody wants to know."""
        if self._interpreter is None and self.asks_interpreter:
            self._interpreter = interpreter.ask()
        return self._interpreter

    def begin_scan(self) -> Future[list[Library]] | None:
        """Reads the libraries beside whatever else is looked at: the first time it takes seconds. None: not wanted.

        Not before a trial has ended, whose numbers it would spoil.
        """
        if self._scan is None and self.scans:
            self._scan = Future()
            # A daemon: who presses Ctrl-C does not want to wait for it.
            threading.Thread(target=_scan_into, args=(self._scan, self.home), daemon=True).start()
        return self._scan


def _scan_into(found: Future[list[Library]], home: str) -> None:
    from lastwords.prevent.scan import scan

    try:
        found.set_result(scan(home=home))
    except BaseException as error:  # noqa: BLE001  # whoever waits for it is told
        found.set_exception(error)
