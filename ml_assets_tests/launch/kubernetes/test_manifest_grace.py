"""The grace of a pod on spot: the time to save, and to hand over."""

import pytest

from ml_assets.launch.kubernetes.manifest import job_manifest, save_seconds
from ml_assets.spec.training import TrainingSpec
from ml_assets_tests.launch.kubernetes.manifest_parts import container_of, on_spot, pod_of
from ml_assets_tests.launch.kubernetes.orders import many_nodes


@pytest.mark.parametrize(
    ("training", "state_bytes", "seconds"),
    [
        (on_spot(50), 10**9, 2 * 20 + 15),
        (on_spot(1000), 10**9, 20),
        (on_spot(0.1), 10**12, 3600),
        (TrainingSpec(), 10**10, 2 * 100 + 15),
        (TrainingSpec(), 0, 20),
        (TrainingSpec(), None, 2 * 10 + 15),
        (None, None, 20),
    ],
)
def test_the_grace_is_that_of_two_checkpoints_and_a_step(
    training: TrainingSpec | None, state_bytes: int | None, seconds: int
) -> None:
    assert save_seconds(training, state_bytes) == seconds


def test_a_pod_is_given_its_grace_and_time_to_hand_over() -> None:
    order, cluster = many_nodes()
    job = job_manifest(order, cluster)
    arguments = container_of(job)["args"]
    assert arguments[arguments.index("--grace") + 1] == str(order.grace_seconds)
    assert pod_of(job)["terminationGracePeriodSeconds"] > order.grace_seconds + 25
