"""Libraries compiled here, run on emulated CPUs, and what the scan says of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lastwords.prevent import cpus
from lastwords.prevent.scan import scan
from lastwords.prevent.scan_model import Library
from tests.prevent.ground_truth import compiled

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(compiled.missing_tools() is not None, reason=str(compiled.missing_tools())),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("libraries")
    compiled.compile_loader(made)
    for library in compiled.LIBRARIES:
        compiled.compile_library(library, made)
    return made


def said(folder: Path, cpu: str) -> dict[str, Library]:
    chosen = cpus.named(compiled.CPUS[cpu])
    found = scan([folder], cpu=chosen.features, architecture="x86_64", home=folder / "home")
    return {Path(library.path).stem.removeprefix("lib"): library for library in found}


@pytest.mark.parametrize("cpu", compiled.CPUS)
def test_what_runs_is_not_accused_and_what_dies_is(folder: Path, cpu: str):
    libraries = said(folder, cpu)
    wrong = []
    for library in compiled.LIBRARIES:
        truly_dies = compiled.dies(folder / "load", folder / f"lib{library.name}.so", cpu)
        verdict = libraries[library.name]
        if truly_dies and (verdict.verdict == "ok" or not verdict.missing):
            wrong.append(f"{library.name} dies, and was called {verdict.verdict}: {verdict}")
        if not truly_dies and verdict.verdict == "will-crash":
            wrong.append(f"{library.name} runs, and was accused: {verdict}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "guarded",
        "guarded-stripped",
        "guarded-pointer",
        "guarded-table",
        "chosen-by-loader",
        "clones",
        "asks-for-enough",
    ],
)
def test_a_guarded_library_is_fine_everywhere(folder: Path, name: str):
    assert {said(folder, cpu)[name].verdict for cpu in ("Conroe", "Nehalem", "SandyBridge", "Haswell")} == {
        "ok"
    }


@pytest.mark.parametrize("how", [*range(1, 7), "stripped"])
def test_a_guard_protects_what_it_asks_for_and_nothing_else(folder: Path, how: int | str):
    """AVX is asked for and AVX2 runs: only a CPU with the one and not the other dies of it."""
    verdicts = {
        cpu: said(folder, cpu)[f"asks-for-less-{how}"] for cpu in ("Nehalem", "SandyBridge", "Haswell")
    }
    assert {cpu: found.verdict for cpu, found in verdicts.items()} == {
        "Nehalem": "ok",
        "SandyBridge": "may-crash",
        "Haswell": "ok",
    }
    assert verdicts["SandyBridge"].missing == ("avx2",)
    assert "asks for avx" in verdicts["SandyBridge"].why and "runs avx2" in verdicts["SandyBridge"].why


def test_dispatched_extensions_are_named_as_such(folder: Path):
    table = said(folder, "Nehalem")["guarded-table"]
    assert {"avx2", "avx512f"} <= set(table.dispatched)
    assert not table.needs


def test_levels_have_names(folder: Path):
    found = said(folder, "Nehalem")
    assert found["plain"].level == "x86-64-v1"
    assert found["throughout-v3"].level == "x86-64-v3"
    assert found["throughout-v4"].level == "x86-64-v4"


def test_the_reason_names_the_function(folder: Path):
    constructor = said(folder, "Nehalem")["constructor"]
    assert constructor.verdict == "will-crash"
    assert "while it is loaded" in constructor.why and "fill" in constructor.why
