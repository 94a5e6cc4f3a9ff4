"""A search that nobody asks for: the gates refuse twice what drift trained, and a study follows."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from ml_assets.actions.override import override_refusal
from ml_assets.automation import search_starts
from ml_assets.automation.drift_sensor import drift_tick
from ml_assets.automation.jobs import pipeline_jobs
from ml_assets.automation.search_starts import DueStudy, search_after_refusals
from ml_assets.settings import read_settings
from ml_assets.store.pipeline_context import Pipeline, open_pipeline
from ml_assets_tests.automation.conftest import QUIET, World, make_it_quick
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.world import World as Folders

LANDING = "landing"
DRIFT = "{seasonal: {back: 6, around: 0}, retrain: {cooldown: 1 hour, runs_per_day: 1}}"
HEAVY = frozenset({14, 15, 16, 17})
"""Weeks (from 0) whose loads are shifted: all that come after the release."""
SEARCH = """\
search:
  method: grid
  trials: 2
  seeds: 0
  adopt: true
  after_refusals: 2
  parameters:
    model.num_leaves: {kind: choice, values: [5, 9]}
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A model is released, then the gates become so strict that they refuse every other one."""
    with pytest.MonkeyPatch.context() as environment, dg.instance_for_test() as instance:
        Folders(tmp_path).enter(environment)
        automation = "{landing: {}}"
        folders = (tmp_path / "pipelines", tmp_path / "sources")
        deliveries.plant(*folders, weeks=14, automation=automation, drift=DRIFT)
        world = World(tmp_path, instance)
        spec = world.folder / "defs.yaml"
        make_it_quick(spec)
        (world.folder / "search.yaml").write_text(SEARCH)
        world.settle(LANDING)
        refresh = world.defs.resolve_job_def("deliveries__refresh")
        assert refresh.execute_in_process(instance=instance).success
        spec.write_text(spec.read_text().replace("at_least: 0.01", "at_least: 0.98"))
        yield world


def asks_for(world: World, day: int) -> list[dg.RunRequest]:
    """One tick of the drift sensor, so many days from now: the cooldown is over."""
    pipeline = _opened()
    retrain = pipeline.spec.drift.retrain if pipeline.spec.drift else None
    assert retrain
    now = datetime.now(UTC) + timedelta(days=day)
    text = world.cursors.get("drift")
    found = drift_tick(pipeline, pipeline_jobs(pipeline), retrain, world.instance, text, now)
    world.cursors["drift"] = found.cursor
    return list(found.run_requests or ())


def lands(world: World, weeks: int) -> None:
    deliveries.land(world.sources, weeks, heavy=HEAVY)
    world.settle(LANDING)


def searches(world: World, request: dg.RunRequest) -> bool:
    """Run a request for a study; False: the gates refused the model of its winner."""
    job = world.defs.resolve_job_def(str(request.job_name))
    tags = {**request.tags, "dagster/run_key": str(request.run_key)}
    return job.execute_in_process(
        instance=world.instance, tags=tags, run_config=QUIET, raise_on_error=False
    ).success


def _opened() -> Pipeline:
    return open_pipeline("deliveries", read_settings())


def overridden() -> None:
    """A person answers for the model that was refused last: it is no decision of the gates."""
    said = override_refusal("deliveries", None, "ada", "the strike is over", read_settings(), print)
    assert said.kind == "override"


@pytest.mark.timeout(1200)
def test_two_refusals_in_a_row_ask_for_a_study_once_and_one_for_none(world: World) -> None:
    """Neither does an override of the first begin the count anew."""
    lands(world, 16)
    (first,) = asks_for(world, 2)
    assert first.job_name == "deliveries__refresh"
    assert not world.execute(first), "the gates refuse it"
    assert asks_for(world, 4) == [], "one refusal is none in a row"
    overridden()

    lands(world, 17)
    (second,) = asks_for(world, 6)
    assert second.job_name == "deliveries__refresh", "a retraining searches nothing"
    assert not world.execute(second)
    assert _opened().now().record(_opened().address("hyperparameter_search")) is None

    (study,) = asks_for(world, 8)
    assert study.job_name == "deliveries__search"
    assert study.tags["trigger"] == "drift"
    assert study.tags["why"].startswith("the gates refused 2 trainings in a row that drift")
    assert not searches(world, study), "nor does the winner meet such gates"
    now = _opened().now()
    record = now.record(now.address("hyperparameter_search"))
    assert record is not None and record.attributes["trials"] == 3
    assert asks_for(world, 10) == [], "what the gates refused before the study does not count again"

    lands(world, 18)
    (third,) = asks_for(world, 12)
    assert third.job_name == "deliveries__refresh"
    assert not world.execute(third)
    assert asks_for(world, 14) == [], "one refusal since the study"


def test_a_study_that_failed_holds_up_no_drift_and_one_that_died_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = [SimpleNamespace(seq=5, reason="auc"), SimpleNamespace(seq=7, reason="auc")]
    monkeypatch.setattr(search_starts, "refused_in_a_row", lambda *_: refused)
    monkeypatch.setattr(search_starts, "study_is_due", lambda _: DueStudy("never made", "these"))
    own = SimpleNamespace(name="p", search=SimpleNamespace(after_refusals=2))
    pipeline: Any = SimpleNamespace(declared=own, search=own.search)
    jobs: Any = SimpleNamespace(search=SimpleNamespace(name="p__search"))

    def asked() -> str | None:
        found = search_after_refusals(pipeline, jobs, instance)
        assert found is None or found.tags["dagster/max_retries"] == "0", "nobody asks beside it"
        return found.run_key if found else None

    def ended(key: str | None, *, died: bool) -> None:
        tags = {"dagster/run_key": str(key)}
        if died:
            run = dg.DagsterRun("p__search", tags=tags, status=dg.DagsterRunStatus.STARTED)
            instance.report_run_failed(instance.add_run(run), "its process is gone")
        else:
            failing(tags).execute_in_process(instance=instance, raise_on_error=False)

    with dg.instance_for_test() as instance:
        first = asked()
        assert first is not None and asked() == first, "until Dagster began it"
        ended(first, died=True)
        second = asked()
        assert second not in (None, first)
        ended(second, died=False)
        assert asked() is None, "what fails by itself is not asked for again"
        refused.append(SimpleNamespace(seq=9, reason="auc"))
        assert asked() not in (None, first, second), "the next refusal asks anew"


def failing(tags: dict[str, str]) -> dg.JobDefinition:
    @dg.op
    def study() -> None:
        raise ValueError("no trial came to a result")

    @dg.job(name="p__search", tags=tags)
    def job() -> None:
        study()

    return job
