"""Evidence that no collector would make: parts of several deaths, in any mixture, and parts missing."""

from __future__ import annotations

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lastwords.causes import all_causes
from lastwords.diagnosis import diagnose, why_not
from lastwords.evidence import Evidence
from lastwords.evidence.text import from_text
from lastwords.evidence.together import together
from lastwords.show import html, json, text
from tests.cases import evidence_of, names
from tests.corpus import own

FIELDS = [
    field.name for field in msgspec.structs.fields(Evidence) if field.name not in ("id", "missing", "notes")
]
DEATHS = [evidence_of(name) for name in names()]
LOGS = [case.log for case in own()]

quick = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def mixtures(draw: st.DrawFn) -> Evidence:
    """Each field of one death, of another, of a log, or none at all."""
    sources = [*draw(st.lists(st.sampled_from(DEATHS), min_size=1, max_size=3)), Evidence()]
    sources.append(from_text(draw(st.sampled_from(LOGS))))
    fields = {name: getattr(draw(st.sampled_from(sources)), name) for name in FIELDS}
    return Evidence(**fields)


@quick
@given(mixtures())
def test_any_mixture_is_judged_by_every_cause_and_shown(evidence: Evidence):
    diagnosis = diagnose(evidence)
    assert diagnosis.notes == ()
    assert len(diagnosis.verdicts) == len(all_causes())
    assert all(0 <= one.confidence <= 1 for one in diagnosis.verdicts)
    assert text.render(diagnosis, full=True) and json.render(diagnosis)
    assert html.render([diagnosis]).endswith("</html>\n")
    assert why_not(diagnosis, "out-of-memory") is not None


@quick
@given(st.lists(st.one_of(mixtures(), st.sampled_from(LOGS).map(from_text)), min_size=1, max_size=4))
def test_any_accounts_are_put_together(accounts: list[Evidence]):
    deaths = together(accounts)
    assert 1 <= len(deaths) <= len(accounts)
    assert all(diagnose(death).notes == () for death in deaths)
