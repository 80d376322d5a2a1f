"""Which cause it was, and how sure that is. See README.md for the map."""

from lastwords.diagnosis.confidence import CLAIMED, LISTED, confidence
from lastwords.diagnosis.diagnose import diagnose
from lastwords.diagnosis.explain import explain
from lastwords.diagnosis.model import Diagnosis, Verdict
from lastwords.diagnosis.why_not import WhyNot, why_not

__all__ = [
    "CLAIMED",
    "LISTED",
    "Diagnosis",
    "Verdict",
    "WhyNot",
    "confidence",
    "diagnose",
    "explain",
    "why_not",
]
