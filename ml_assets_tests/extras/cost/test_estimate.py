"""What can be said before: a training by the pace of those before it, a year by its ticks."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
import yaml

from ml_assets.assets.trained_model.cost.jobs import Job, Use
from ml_assets.assets.trained_model.cost.money import HOUR, in_words
from ml_assets.assets.trained_model.cost.split import split_session
from ml_assets.extras.cost.account import projection
from ml_assets.extras.cost.estimate import LAST, estimate, estimated, planned_steps
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.usage import AttemptUsage, Held, Mark
from ml_assets_tests.worlds import irises

BEGIN = datetime(2026, 1, 5, tzinfo=UTC)
SECOND = 1_000_000


def training(
    number, *, steps=100, done=100, pace=1.0, start=10, nodes=1, end="done", run=None, verb="train"
):
    """The number-th job of a pipeline, one a day: so many seconds a step, after a start."""
    created = BEGIN + timedelta(days=number)
    stepped = start + done * pace
    ended = created + timedelta(seconds=stepped)
    held = Held(
        nodes=nodes,
        price_class="on-demand",
        created=created,
        scheduled=created,
        started=created,
        ended=ended,
    )
    marks = (Mark(after=1000 * start, step=0), Mark(after=int(1000 * stepped), step=done))
    usage = AttemptUsage(
        pipeline="irises",
        session=f"irises-{verb}-{number}",
        attempt=1,
        verb=verb,
        held=held,
        end=end,
        steps=steps if verb == "train" else None,
        marks=marks if verb == "train" else (),
    )
    (split,) = split_session([usage], "useful" if end == "done" else "failed")
    use = Use(usage, split, Decimal("3.6"), None)
    return Job(usage.session, "irises", "team:botany", run or f"run-{number}", (use,))


@pytest.fixture(scope="module")
def spec() -> PipelineSpec:
    return PipelineSpec.model_validate(yaml.safe_load(irises.SPEC)["attributes"])


def test_a_training_is_estimated_by_the_usual_pace_of_those_before_it():
    slow, usual = training(1, pace=9.0), [training(n, pace=2.0, start=30) for n in (2, 3)]
    found = estimate(50, [slow, *usual])
    assert found is not None
    assert found.node_time == (50 * 2 + 30) * SECOND
    assert found.how == "50 steps x 2,000.0 ms and 30.0 s besides, as in the last 3 trainings"


def test_machines_count_each_and_what_failed_or_did_not_train_says_nothing():
    nothing = [training(1, end="failed"), training(2, verb="score"), training(3, done=0)]
    assert estimate(100, nothing) is None
    four = estimate(100, [*nothing, training(4, nodes=4)])
    assert four is not None and four.node_time == 4 * 110 * SECOND


def test_only_the_last_few_are_looked_back_at():
    jobs = [training(n, pace=9.0) for n in range(20)] + [training(n) for n in range(20, 20 + LAST)]
    found = estimate(100, jobs)
    assert found is not None and found.node_time == 110 * SECOND


def test_each_training_is_held_against_what_was_known_before_it_began():
    jobs = [training(1), training(2, pace=3.0), training(3, verb="score"), training(4)]
    found = estimated(jobs)
    assert found.keys() == {"irises-train-2", "irises-train-4"}
    assert found["irises-train-2"].node_time == 110 * SECOND
    beside = training(1, pace=2.0)
    assert estimated([training(1), beside]) == {}, "the one was not over when the other began"


def test_the_pace_of_a_training_is_taken_once_however_many_come_after_it():
    looked = Counter()

    class Watched(Job):
        @property
        def paid(self):
            looked[self.name] += 1
            return super().paid

    estimated([Watched(**vars(training(number))) for number in range(9)])
    assert looked == {f"irises-train-{number}": 1 for number in range(9)}


def test_the_next_training_has_the_steps_of_the_present_spec(spec):
    then = {"training": {"epochs": 10, "batch_size": 12, "accumulate": 1}, "model": {}}
    assert spec.training.epochs == 30 and spec.training.batch_size == 24
    assert planned_steps(100, then, spec) == 5 * 30
    assert planned_steps(120, spec.model_dump(mode="json"), spec) == 120
    assert planned_steps(120, {}, spec) == 120


def weekly(spec, **more):
    plain = spec.model_dump(mode="json", by_alias=True)
    return PipelineSpec.model_validate(
        {**plain, "automation": {"refresh": {"cron": "0 6 * * 1", **more}}}
    )


def test_a_year_of_a_schedule_is_its_ticks_times_the_mean_cost_of_a_run(spec):
    jobs = [
        training(1, done=90, start=10, run="one"),
        training(2, done=0, start=100, verb="score", run="one"),
        training(3, done=190, start=10, run="two"),
        training(4, verb="score", run="nobody trained in it"),
    ]
    tuesday = BEGIN + timedelta(days=1)
    found = projection(weekly(spec), jobs, tuesday)
    assert found is not None
    assert (found.ticks, found.runs, found.node_time) == (52, 2, 200 * SECOND)
    assert found.cost == Fraction(200 * 36, 36000)
    assert in_words(found.a_year) == "10.40"
    assert projection(spec, jobs, BEGIN) is None, "nothing is declared"
    assert projection(weekly(spec), [jobs[3]], BEGIN) is None, "nothing has trained"


def test_hours_of_machines_are_counted_in_whole_microseconds():
    assert timedelta(hours=1) // timedelta(microseconds=1) == HOUR
