"""joblib, and whatever stands on it, with our workers underneath."""

from __future__ import annotations

import pytest

from lastwords.survive.policy import Policy, WorkerDied
from tests.survive import deadly

joblib = pytest.importorskip("joblib")

import lastwords.joblib  # noqa: E402, F401  # registers the backend


def test_parallel_runs_on_our_workers_and_survives_a_death():
    with joblib.parallel_config(backend="lastwords", n_jobs=2):
        found = joblib.Parallel()(joblib.delayed(deadly.work)(item) for item in range(200))
    assert found == list(range(0, 2000, 10))


def test_a_death_is_told_and_the_next_parallel_works():
    with joblib.parallel_config(backend="lastwords", n_jobs=2, policy=Policy(retries=0)):
        with pytest.raises(WorkerDied, match="SIGKILL"):
            joblib.Parallel(batch_size=1)(joblib.delayed(deadly.die_running)("sigkill") for _ in range(2))
        assert joblib.Parallel()(joblib.delayed(deadly.work)(item) for item in range(4)) == [0, 10, 20, 30]


@pytest.mark.heavy
def test_scikit_learn_searches_on_our_workers():
    pytest.importorskip("sklearn")
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    features, kinds = load_iris(return_X_y=True)
    search = GridSearchCV(LogisticRegression(max_iter=200), {"C": [0.1, 1.0]}, cv=3, n_jobs=2)
    with joblib.parallel_config(backend="lastwords"):
        search.fit(features, kinds)
    assert search.best_score_ > 0.9
