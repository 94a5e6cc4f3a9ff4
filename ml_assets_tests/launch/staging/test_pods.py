"""Pods that share nothing but the object store with their launcher: the program itself runs."""

from pathlib import Path

from ml_assets.launch.events import session_events
from ml_assets_tests.launch.real import STEPS, numbered, train_job
from ml_assets_tests.launch.staging.pods import weights


def test_two_pods_train_the_weights_of_two_local_processes_bit_for_bit(home, data, undisturbed):
    mirror, uri = home.train(train_job(data))
    codes = [pod.code() for pod in home.start(uri)]
    assert codes == [0, 0], home.pods[0].said()[-3000:]
    mirror.pull(1)
    assert mirror.collect(1)
    result = mirror.folder.finished_training()
    assert result is not None and result.step == STEPS
    assert weights(mirror.folder.model) == weights(Path(undisturbed[1].model.uri))
    events = session_events(mirror.folder.root)
    assert numbered(events)[1] == list(range(len(numbered(events)[1])))
