"""Evidence of deaths, one JSON file each: what the causes, the diagnosis and the renderers are tested with.

Those named like an animal of the zoo are what that animal leaves behind.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from lastwords.diagnosis import Diagnosis, diagnose
from lastwords.evidence import Evidence

HERE = Path(__file__).parent


def names() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.json"))


def evidence_of(name: str, death: str = "7f3a91c2") -> Evidence:
    found = msgspec.json.decode((HERE / f"{name}.json").read_bytes(), type=Evidence)
    return msgspec.structs.replace(found, id=death)


def diagnosis_of(name: str) -> Diagnosis:
    return diagnose(evidence_of(name))
