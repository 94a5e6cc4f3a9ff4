"""Two homes on one cluster and one store: whose word counts for a score that is there."""

import base64

import pytest

from ml_assets.launch.launcher import ScoreJob
from ml_assets.store.signing import Keys
from ml_assets_tests.launch.kubernetes.stage import ONE_NODE, Stage

OURS, THEIRS = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
pytestmark = [pytest.mark.daemon, pytest.mark.timeout(900)]


def test_a_score_counts_in_a_home_that_trusts_its_key_and_in_no_other(
    tmp_path, cluster, store, undisturbed, monkeypatch
):
    first = Stage(tmp_path / "first", cluster, store).furnish()

    def score(home: Stage) -> str:
        data = home.job().data
        job = ScoreJob("demo", undisturbed[1].model, data, "holdout", cluster=ONE_NODE)
        made = home.launcher().score(job, lambda _: None)
        return made.predictions.sha256

    def jobs() -> list[str]:
        return sorted({call.name[-3:] for call in cluster.server.calls.of("delete", "jobs")})

    monkeypatch.setenv("ML_ASSETS_SIGNING_KEY", OURS)
    scored = score(first)
    assert jobs() == ["-a1"]
    monkeypatch.setenv("ML_ASSETS_SIGNING_KEY", THEIRS)
    with monkeypatch.context() as trusting:
        trusting.setenv("ML_ASSETS_TRUSTED_KEYS", Keys.of(OURS).public)
        assert score(first.other_home(tmp_path / "trusting")) == scored
    assert jobs() == ["-a1"], "it was taken over, and not scored again"
    assert score(first.other_home(tmp_path / "stranger")) == scored
    assert jobs() == ["-a1", "-a2"]
    assert first.left() == []
