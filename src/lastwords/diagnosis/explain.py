"""One call from what a user has to a diagnosis."""

from __future__ import annotations

import os

from lastwords.diagnosis.diagnose import diagnose
from lastwords.diagnosis.model import Diagnosis
from lastwords.evidence import from_box


def explain(text_or_path: str | os.PathLike[str]) -> Diagnosis:
    """Explains the death that a black box recorded.

    Raises UnreadableBox, a ValueError, for anything else: log text is not read yet.
    """
    return diagnose(from_box(text_or_path))
