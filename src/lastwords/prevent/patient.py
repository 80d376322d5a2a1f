"""Whom the checks look at: this machine, an interpreter on it and, where there is one, a job that was tried."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from lastwords.prevent import interpreter
from lastwords.prevent.interpreter import Interpreter
from lastwords.prevent.measured import Trial


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

    @property
    def interpreter(self) -> Interpreter | None:
        """Asked once, and only if somebody wants to know."""
        if self._interpreter is None and self.asks_interpreter:
            self._interpreter = interpreter.ask()
        return self._interpreter
