"""The parts of a recovery, of the moments that Kubernetes and the program tell."""

from datetime import UTC, datetime

from ml_assets.launch.kubernetes.recovered import recovered
from ml_assets.spec.program.events import Metrics, Progress
from ml_assets_tests.launch.kubernetes.objects import a_job, a_pod, condition

LOST = datetime(2026, 1, 5, 9, 59, 56, tzinfo=UTC)


def told(second, kind, **more):
    own = {"session": "s", "attempt": 2, "seq": second, "step": 5}
    return kind(**own, **more, time=datetime(2026, 1, 5, 10, 0, second, tzinfo=UTC))


def test_each_part_is_the_time_since_the_one_before():
    pods = [a_pod(i, {"running": {"startedAt": "2026-01-05T10:00:02Z"}}, *on()) for i in (0, 1)]
    resumed = told(9, Progress, steps=60, message="resumed at step 5")
    assert recovered(LOST, a_job(), pods, [resumed]) is None, "there was no step yet"
    said = recovered(LOST, a_job(), pods, [resumed, told(11, Metrics, metrics={})])
    assert said == (
        "From the lost pod to the next step: 15 s (notice, save and end 4, schedule 1,"
        " image and start 1, import, fetch and meet 7, first step told 2)."
    )


def on():
    return [condition("PodScheduled", second=1)]
