"""Packages from pip on an emulated CPU without AVX, against what the scan says of their libraries."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lastwords.prevent import cpus
from lastwords.prevent.scan import read, verdicts
from tests.prevent.ground_truth import compiled, packages
from tests.prevent.ground_truth.packages import LISTS

SITE = Path(__file__).resolve().parents[2] / ".venv" / "ground-truth"
CPU = "Nehalem"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.heavy,
    pytest.mark.skipif(compiled.missing_tools() is not None, reason=str(compiled.missing_tools())),
]


@pytest.fixture(scope="module")
def site() -> Path:
    try:
        packages.install(LISTS["in_ci"], SITE)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"packages could not be installed: {error.stderr.decode(errors='replace')[-200:]}")
    return SITE


@pytest.fixture(scope="module")
def said(site: Path) -> dict[str, str]:
    chosen = cpus.named(packages.archspec_name(CPU))
    found = verdicts(read([site]), chosen.features, "x86_64")
    return {str(Path(library.path).resolve()): library.verdict for library in found}


@pytest.fixture(scope="module")
def teller(tmp_path_factory) -> Path:
    return packages.compile_teller(tmp_path_factory.mktemp("teller"))


def test_no_package_was_used_to_set_thresholds_and_to_score():
    assert not set(LISTS["tuned"]) & set(LISTS["scored"])
    assert set(LISTS["in_ci"]) <= set(LISTS["scored"])
    assert len(LISTS["in_ci"]) >= 25


@pytest.mark.timeout(300)
@pytest.mark.parametrize("package", LISTS["in_ci"])
def test_the_scan_says_what_happens(package: str, site: Path, said: dict[str, str], teller: Path):
    outcome = packages.run(package, LISTS["scored"][package], CPU, site, teller)
    assert outcome.end in {"ran", "died"}, outcome
    assert not packages.mistakes(outcome, said)
