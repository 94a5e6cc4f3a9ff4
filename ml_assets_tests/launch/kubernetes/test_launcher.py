"""Training sessions as Jobs of a cluster: faults do not show in the weights, and nothing stays."""

from pathlib import Path

import pytest

from ml_assets.launch.folder import SessionFolder
from ml_assets.launch.usage import session_usages
from ml_assets_tests.launch.kubernetes.stage import Stage, weights
from ml_assets_tests.launch.real import STEPS, named
from ml_assets_tests.storage.s3_rights import PODS
from ml_assets_tests.storage.s3_server import s3_server


@pytest.fixture
def store(monkeypatch):
    with s3_server(monkeypatch) as found:
        yield found


@pytest.fixture
def stage(tmp_path, cluster, store):
    return Stage(tmp_path / "home", cluster, store).furnish()


def test_two_pods_train_the_weights_of_two_local_processes_bit_for_bit(stage, undisturbed):
    job = stage.job()
    result = stage.launcher().train(job, stage.events.append)
    assert (result.attempt, result.step) == (1, STEPS)
    assert weights(result) == weights(undisturbed[1])
    assert stage.left() == []
    assert stage.events == stage.told(job)
    again = []
    calls = len(list(stage.cluster.server.calls))
    assert stage.launcher().train(job, again.append) == result
    assert again == stage.events
    assert len(list(stage.cluster.server.calls)) == calls, "what is finished asks no cluster"
    assert named(stage.events, "warning") == []
    log = (stage.folder(job) / "attempts" / "1" / "log.txt").read_text()
    assert log.startswith("[staging] pod 0 ends with 0: done\n"), "the first pod's was followed"
    (used,) = session_usages(SessionFolder(stage.folder(job)))
    held = used.held
    assert (used.end, used.last_step, held.nodes, held.gpus_per_node) == ("done", STEPS, 2, 0)
    assert held.created <= held.scheduled <= held.started <= held.ended
    rows = sum(f.stat().st_size for f in (Path(job.data.uri) / "train").rglob("*.npy"))
    assert held.staged_bytes > 2 * rows > 0, "each pod fetched the training set"
    used = stage.store.rights[PODS].used
    assert {("s3:GetObject", "shards"), ("s3:PutObject", "sessions")} <= used
    assert used <= stage.store.rights[PODS].granted
