"""Writing the page that `--html FILE` asks for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lastwords.diagnosis import Diagnosis


def write_page(file: Path, diagnoses: Sequence[Diagnosis], *, program: str) -> None:
    """Whole or not at all, and for its owner alone: who may read a report is its owner's to say. Raises OSError."""
    from lastwords.show import html

    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    content = html.render(diagnoses, program=program)
    try:
        with open(
            os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
        ) as page:
            page.write(content)
        unfinished.replace(file)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
