"""Training sessions as Jobs of a cluster: faults do not show in the weights, and nothing stays."""

import pytest

from ml_assets.launch.kubernetes.names import SESSION_LABEL, selector_of, slug_of
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.launch.session_name import train_session
from ml_assets.launch.usage import session_usages
from ml_assets.store.open import mark_of
from ml_assets_tests.launch.kubernetes.stage import IMAGE, ONE_NODE, URI, weights
from ml_assets_tests.launch.real import STEPS, by_number, named
from ml_assets_tests.store.s3_rights import PODS
from ml_assets_tests.worlds.shards import shard_of


def test_two_pods_train_the_weights_of_two_local_processes_bit_for_bit(stage, undisturbed):
    job = stage.job()
    result = stage.launcher().train(job, stage.events.append)
    assert (result.attempt, result.step) == (1, STEPS)
    assert weights(result) == weights(undisturbed[1])
    assert stage.left() == []
    assert by_number(stage.events) == by_number(stage.told(job))
    again = []
    calls = len(list(stage.cluster.server.calls))
    assert stage.launcher().train(job, again.append) == result
    assert by_number(again) == by_number(stage.events)
    assert len(list(stage.cluster.server.calls)) == calls, "what is finished asks no cluster"
    assert named(stage.events, "warning") == []
    log = (stage.folder(job) / "attempts" / "1" / "log.txt").read_text()
    assert log.startswith("[staging] pod 0 ends with 0: done\n"), "the first pod's was followed"
    (used,) = session_usages(SessionFolder(stage.folder(job)))
    held = used.held
    furthest = max(mark.step for mark in used.marks)
    assert (used.end, furthest, held.nodes, held.gpus_per_node) == ("done", STEPS, 2, 0)
    assert held.created <= held.scheduled <= held.started <= held.ended
    rows = sum(f.stat().st_size for f in shard_of(job.data, "train").glob("*.npy"))
    assert held.staged_bytes > 2 * rows > 0, "each pod fetched the training set"
    used = stage.store.rights[PODS].used
    assert {("s3:GetObject", "shards"), ("s3:PutObject", "sessions")} <= used
    assert used <= stage.store.rights[PODS].granted


def test_a_job_that_trains_for_the_same_pipeline_beside_ours_is_told(stage):
    stage.cluster.server.images.failing[IMAGE] = "dial tcp 10.0.0.1:443: i/o timeout"

    def begin(seed, stop, goes_on):
        """Until it is interrupted, as a command is; what it was told."""
        told = []

        def take(event):
            told.extend([event.message] if event.kind == "warning" else [])
            if stop in str(told):
                raise KeyboardInterrupt

        job = stage.job(cluster=ONE_NODE, processes=1, seed=seed)
        with pytest.raises(KeyboardInterrupt):
            stage.launcher(goes_on=lambda: goes_on).train(job, take)
        return train_session(job), told

    orphan, told = begin(1, "RegistryAway", True)
    assert "trains demo, too" not in str(told)
    _, told = begin(2, "too", False)
    (said,) = [one for one in told if "trains demo, too" in one]
    (job,) = stage.api().jobs(selector_of())
    assert f"kubectl delete job {job.name}" in said, "it is there still, and ours is not"
    assert job.labels[SESSION_LABEL] == slug_of(orphan, mark_of(URI))
