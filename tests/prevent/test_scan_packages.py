"""Packages from pip on emulated CPUs, against what the scan says of their libraries."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lastwords.prevent import cpus
from lastwords.prevent.scan import read, verdicts
from lastwords.prevent.scan_model import Library
from tests.prevent.ground_truth import compiled, packages
from tests.prevent.ground_truth.packages import LISTS

SITE = Path(__file__).resolve().parents[2] / ".venv" / "ground-truth"
WITHOUT_AVX, WITHOUT_AVX2 = "Nehalem", "SandyBridge"
RUNS = [
    *((package, WITHOUT_AVX) for package in LISTS["in_ci"]),
    *((package, WITHOUT_AVX2) for package in LISTS["in_ci_between"]),
]
FOREVER = packages.LONGEST_RUN + 60

pytestmark = [
    pytest.mark.slow,
    pytest.mark.heavy,
    pytest.mark.skipif(compiled.missing_tools() is not None, reason=str(compiled.missing_tools())),
]


@pytest.fixture(scope="module")
def site() -> Path:
    wanted = [f"{name}=={version}" for name, version in LISTS["in_ci"].items()]
    try:
        packages.install(wanted, SITE)
    except subprocess.CalledProcessError:
        # One of them has no wheel for this Python: the others are no worse for that.
        for one in wanted:
            _try_to_install(one)
    return SITE


def _try_to_install(wanted: str) -> None:
    try:
        packages.install([wanted], SITE)
    except subprocess.CalledProcessError as error:
        print(f"{wanted}: {error.stderr.decode(errors='replace')[-200:]}")


@pytest.fixture(scope="module")
def said(site: Path) -> dict[str, dict[str, Library]]:
    """For each CPU, what the scan says of each file."""
    found = read([site])
    have = {cpu: cpus.named(packages.archspec_name(cpu)).features for cpu in (WITHOUT_AVX, WITHOUT_AVX2)}
    return {
        cpu: {str(Path(one.path).resolve()): one for one in verdicts(found, features, "x86_64")}
        for cpu, features in have.items()
    }


@pytest.fixture(scope="module")
def teller(tmp_path_factory) -> Path:
    return packages.compile_teller(tmp_path_factory.mktemp("teller"))


def test_no_package_was_used_to_set_thresholds_and_to_score():
    assert not set(LISTS["tuned"]) & set(LISTS["scored"])
    assert set(LISTS["in_ci"]) <= set(LISTS["scored"])
    assert set(LISTS["in_ci_between"]) <= set(LISTS["in_ci"])
    assert len(LISTS["in_ci"]) >= 25


@pytest.mark.timeout(FOREVER)
@pytest.mark.parametrize(("package", "cpu"), RUNS)
def test_the_scan_says_what_happens(
    package: str, cpu: str, site: Path, said: dict[str, dict[str, Library]], teller: Path
):
    """No library that runs is called will-crash; one that dies is named, with the extension it died for lack of."""
    if not packages.is_installed(f"{package}=={LISTS['in_ci'][package]}", site):
        pytest.skip(f"{package} could not be installed")
    outcome = packages.run(package, LISTS["scored"][package], cpu, site, teller)
    assert outcome.end in {"ran", "died"}, outcome
    assert not packages.mistakes(outcome, said[cpu])
