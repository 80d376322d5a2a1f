"""Where an engine's workers send their deaths: to the place that their driver has been told."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastwords.engines import ray
from lastwords.engines.spark import driver


def test_ray_takes_it_along(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("LASTWORDS_COLLECT", raising=False)
    assert "env_vars" not in ray.runtime_env()
    monkeypatch.setenv("LASTWORDS_COLLECT", "s3://bucket/deaths")
    found = ray.runtime_env(env_vars={"A": "1"}, pip=["x"])
    assert found["env_vars"] == {"A": "1", "LASTWORDS_COLLECT": "s3://bucket/deaths"} and found["pip"] == [
        "x"
    ]
    assert ray.runtime_env(env_vars={"LASTWORDS_COLLECT": "/mine"})["env_vars"] == {
        "LASTWORDS_COLLECT": "/mine"
    }


@pytest.mark.parametrize(
    ("told", "handed_on"), [("gs://b/deaths", "gs://b/deaths"), ("deaths", "HERE/deaths"), ("", "")]
)
def test_spark_hands_it_to_its_executors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: str, handed_on: str
):
    """An executor has another working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LASTWORDS_COLLECT", told)
    assert (driver._wishes_here().collect or "") == handed_on.replace("HERE", str(tmp_path))
