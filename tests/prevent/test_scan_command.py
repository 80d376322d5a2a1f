"""`lastwords scan` as its users meet it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lastwords import _native
from lastwords.commands._group import group
from lastwords.evidence.packages import Package
from lastwords.prevent import dispatch
from lastwords.prevent.scan_judge import Subject, judge
from lastwords.prevent.scan_report import Need, Report

OURS = Path(_native.__file__)
NEHALEM = frozenset({"pni", "ssse3", "sse4_1", "sse4_2", "popcnt"})
HASWELL = NEHALEM | {"avx", "avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe"}


def lastwords(*words: str, home: Path) -> Result:
    found = CliRunner().invoke(
        group, ["--home", str(home), *words], prog_name="lastwords", env={"COLUMNS": "80"}
    )
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exc_info
    return found


def test_our_own_wheel_runs_on_every_x86_64(tmp_path: Path):
    done = lastwords("scan", str(OURS), "--cpu", "x86_64", "--json", home=tmp_path)
    (library,) = json.loads(done.stdout)
    assert done.exit_code == 0
    assert library["verdict"] == "ok" and library["needs"] == []
    assert {"path", "package", "version", "architecture", "dispatched", "missing", "why"} <= set(library)


def test_the_table_ends_with_a_sum(tmp_path: Path):
    done = lastwords("scan", str(OURS), "--cpu", "nehalem", home=tmp_path)
    assert done.stdout == "1 libraries on nehalem: 1 fine\n"
    assert "_native" in lastwords("scan", str(OURS), "--all", home=tmp_path).stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--cpu", "hasswell"), "did you mean haswell"),
        (("/no/such/place",), "nothing at /no/such/place"),
        (("--fleet", "/no/such/hosts.json"), "cannot read the fleet"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, words: tuple[str, ...], told: str):
    done = lastwords("scan", *words, home=tmp_path)
    assert done.exit_code == 2
    assert told in done.stderr and done.stderr.count("\n") == 1


def test_nothing_there(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    done = lastwords("scan", str(tmp_path / "empty"), home=tmp_path)
    assert (done.exit_code, done.stdout) == (0, "No native library there.\n")


def library(
    *needs: Need,
    path: str = "/x/lib.so",
    package: str | None = None,
    dispatched: tuple[str, ...] = (),
    gpu: tuple[str, ...] = (),
) -> Subject:
    report = Report(architecture="x86_64", needs=needs, dispatched=dispatched, gpu=gpu)
    rule = dispatch.rule_for(path, package, lambda: frozenset({"fuzz.so", "fuzz_avx2.so"}))
    return Subject(path=path, report=report, package=Package(package, "1") if package else None, rule=rule)


def need(extension: str, because: str = "baseline") -> Need:
    return Need(extension=extension, because=because, functions=9)  # type: ignore[arg-type]


def test_certain_needs_crash_and_likely_ones_may():
    assert judge(library(need("avx2")), NEHALEM, "x86_64").verdict == "will-crash"
    assert judge(library(need("avx2", "load")), NEHALEM, "x86_64").missing == ("avx2",)
    assert judge(library(need("avx2", "call")), NEHALEM, "x86_64").verdict == "may-crash"
    assert judge(library(need("abm", "silent")), NEHALEM, "x86_64").verdict == "ok"
    assert judge(library(need("avx2")), HASWELL, "x86_64").verdict == "ok"


def test_a_variant_is_accused_only_where_it_would_be_loaded():
    faiss = library(need("avx2"), need("fma"), path="/x/faiss/_swigfaiss_avx2.abi3.so", package="faiss-cpu")
    assert judge(faiss, HASWELL, "x86_64").verdict == "ok"
    assert judge(faiss, NEHALEM, "x86_64").verdict == "may-crash"
    masked = judge(faiss, HASWELL - {"fma"}, "x86_64")
    assert (masked.verdict, masked.missing) == ("will-crash", ("fma",))
    by_name = library(need("avx2"), path="/x/fuzz_avx2.so")
    assert judge(by_name, NEHALEM, "x86_64").verdict == "may-crash"
    alone = library(need("avx2"), path="/x/other_avx2.so")
    assert judge(alone, NEHALEM, "x86_64").verdict == "will-crash"


def test_glibc_chooses_by_directory():
    found = library(need("avx2"), path="/usr/lib/glibc-hwcaps/x86-64-v3/libz.so")
    assert judge(found, NEHALEM, "x86_64").verdict == "may-crash"


def test_fma_behind_a_guard_for_avx2():
    blas = library(dispatched=("avx2", "fma"))
    assert judge(blas, HASWELL, "x86_64").verdict == "ok"
    assert judge(blas, HASWELL - {"fma"}, "x86_64").missing == ("fma",)
    assert judge(blas, NEHALEM, "x86_64").verdict == "ok"


def test_a_package_that_refuses_does_not_crash():
    assert judge(library(need("avx"), package="jaxlib"), NEHALEM, "x86_64").verdict == "may-crash"


@pytest.mark.parametrize(
    ("built", "capability", "verdict"),
    [
        (("sm_80", "sm_90"), "8.6", "ok"),
        (("sm_80", "sm_90"), "7.5", "may-crash"),
        (("sm_80",), "9.0", "may-crash"),
        (("sm_80", "compute_80"), "9.0", "ok"),
        (("sm_100", "sm_120"), "12.0", "ok"),
        ((), "7.5", "ok"),
    ],
)
def test_gpu_code_against_a_gpu(built: tuple[str, ...], capability: str, verdict: str):
    assert judge(library(gpu=built), HASWELL, "x86_64", [capability]).verdict == verdict


def test_another_machines_library_is_no_crash():
    assert judge(library(need("avx2")), frozenset({"asimd"}), "aarch64").verdict == "ok"


def test_every_rule_names_known_features():
    from lastwords.prevent import features

    known = set(features.known())
    rules = dispatch.known()
    named = {name for rule in rules.rules for name in rule.when} | {
        n for names in rules.tokens.values() for n in names
    }
    assert named <= known, named - known
