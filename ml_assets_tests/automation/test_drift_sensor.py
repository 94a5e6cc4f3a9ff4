"""Drift, tick by tick: a new week is judged by itself, two that drift train a model, and no more.

Boosted trees, and gates that every model passes: what is asked is who asks for what, and why.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from ml_assets.actions.verify import verify_folder
from ml_assets.assets.drift_report.asset import CHECKS
from ml_assets.assets.drift_report.findings import DriftReport
from ml_assets.assets.drift_report.last_report import last_report
from ml_assets.assets.evaluation_report.drift_baseline import BASELINE_FILE, Baseline, read_baseline
from ml_assets.automation.drift_sensor import drift_tick
from ml_assets.automation.jobs import pipeline_jobs
from ml_assets.errors import StorageError
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.origin import find_origin
from ml_assets.records.ledger.stages import champion
from ml_assets.records.load_release import provenance_in_force
from ml_assets.settings import read_settings
from ml_assets.spec.base import digest_of
from ml_assets.store.layout import Address
from ml_assets.store.open import open_snapshots
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.automation.conftest import World, make_it_quick
from ml_assets_tests.conftest import Cli
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.world import World as Folders

SENSOR = "drift"
LANDING = "landing"
DRIFT = "{seasonal: {back: 6, around: 0}, retrain: {cooldown: 1 hour, runs_per_day: 1}}"
HEAVY = frozenset({15, 16})
"""Weeks (from 0) whose loads are shifted: the second and third after the release."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Fourteen weeks are in, and a model is released. The tests are one story, in their order."""
    root = tmp_path_factory.mktemp("drift")
    with pytest.MonkeyPatch.context() as environment, dg.instance_for_test() as instance:
        Folders(root).enter(environment)
        deliveries.plant(
            root / "pipelines",
            root / "sources",
            weeks=14,
            automation="{landing: {}}",
            drift=DRIFT,
        )
        world = World(root, instance)
        make_it_quick(world.folder / "defs.yaml")
        world.settle(LANDING)
        train(world)
        yield world


def train(world: World) -> None:
    """As a click on the refresh job does."""
    job = world.defs.resolve_job_def("deliveries__refresh")
    assert job.execute_in_process(instance=world.instance).success


def report() -> DriftReport:
    found = last_report(open_pipeline("deliveries", read_settings()).now())
    assert found
    return found


def at(world: World, now: datetime, cursor: str | None = None) -> dg.SensorResult:
    """One tick of the drift sensor at another time, with this cursor, or that of the last one."""
    graph = world.graph
    declared = graph.spec.drift
    assert declared
    assert declared.retrain
    jobs = pipeline_jobs(graph)
    text = cursor or world.cursors.get(SENSOR)
    return drift_tick(graph, jobs, declared.retrain, world.instance, text, now)


def test_the_baseline_is_stored_with_the_release_and_certified(world: World, cli: Cli) -> None:
    store = open_snapshots(read_settings().snapshots)
    base = store.resolve("main")
    path = Address("deliveries", "evaluation_report").file(BASELINE_FILE)
    baseline = Baseline.model_validate_json(store.read_bytes(base, path))
    model = champion(read(store, "deliveries", base))
    assert model
    assert baseline.model == model
    assert baseline.trained_on == ("2024-01-08", "2024-02-12")
    assert baseline.features.rows == 6 * deliveries.ORDERS
    assert baseline.features.names == ("load", "docks", "recent_late", "depot")
    assert sum(period.rows for period in baseline.predictions.periods) == 4 * deliveries.ORDERS
    assert [one.period for one in baseline.losses][::3] == ["2024-03-11", "2024-04-01"]
    certified = provenance_in_force(store, "deliveries", model)
    assert certified
    assert certified.baseline == digest_of(baseline)

    # nothing has come since: there is nothing to judge, by nobody
    assert "no period has come since 2024-04-01" in world.says(SENSOR)
    cli("data", "drift", "deliveries", code=1)


def test_a_period_that_the_release_was_judged_on_is_compared_when_it_changes(world: World) -> None:
    (file,) = world.sources.glob("orders/2024-04-01.csv")
    before, head = file.read_text(), "order,depot,load,ordered_at"
    column = before.splitlines()[0].split(",").index("load")
    rows = [line.split(",") for line in before.splitlines()[1:]]
    for share in (
        0.8,
        0.7,
        0.8,
    ):  # what it was before is judged again, though its run was asked for
        light = [[*r[:column], str(float(r[column]) * share), *r[column + 1 :]] for r in rows]
        deliveries.deliver(file, "\n".join([head, *(",".join(row) for row in light)]) + "\n")
        assert world.settle(LANDING)[-1] == "drift"
    (run,) = world.runs({"trigger": "landing", "dagster/run_key": _last_key(world)})
    assert "2024-04-01 changed after the release" in run.tags["why"]
    assert report().newest.period == "2024-04-01"
    deliveries.deliver(file, before)
    world.settle(LANDING)
    assert "none up to it has changed" in world.says(SENSOR)


def test_an_exported_release_carries_the_baseline_that_was_certified(
    world: World, tmp_path: Path, cli: Cli
) -> None:
    folder = tmp_path / "release"
    cli("release", "export", "deliveries", "--to", str(folder))
    file = folder / BASELINE_FILE
    whole = file.read_bytes()
    baseline = Baseline.model_validate_json(whole)
    assert baseline.model == champion(read(open_snapshots(read_settings().snapshots), "deliveries"))
    assert verify_folder(folder, None).holds
    file.write_bytes(whole.replace(b'"rows":', b'"rows": ', 1))
    assert "not the one that was certified" in verify_folder(folder, None).checks[-1].reason
    file.unlink()
    assert not verify_folder(folder, None).holds


def test_an_unchanged_week_is_judged_once_when_it_lands_and_trains_nothing(
    world: World, cli: Cli
) -> None:
    deliveries.land(world.sources, 15)
    assert world.settle(LANDING) == ["sources", "table_closed_orders", "features", "drift"]
    (run,) = world.runs({"trigger": "landing", "dagster/run_key": _last_key(world)})
    assert run.tags["why"].startswith("drift [2024-04-08]: 2024-04-08 came after the release")
    found = report()
    assert found.alarm is None
    assert [window.period for window in found.windows] == ["2024-03-25", "2024-04-01", "2024-04-08"]
    kinds = {finding.kind for finding in found.newest.findings}
    assert kinds == set(CHECKS), "every kind is judged"
    assert any(m.seasonal for f in found.newest.findings for m in f.measures)
    said = world.says(SENSOR)
    assert "2024-04-08 is judged against the release, and has not changed since" in said
    assert "within its bounds" in said

    assert "[ok] Distribution of the features" in cli("data", "drift", "deliveries").out
    assert json.loads(cli("data", "drift", "deliveries", "--json").out)["model"] == found.model


def test_one_week_that_drifts_is_no_alarm_and_two_are(world: World) -> None:
    deliveries.land(world.sources, 16, heavy=HEAVY)
    world.settle(LANDING)
    assert report().alarm is None
    assert "and an alarm needs 2" in report().outcomes[0].reason
    deliveries.land(world.sources, 17, heavy=HEAVY)
    world.settle(LANDING)
    alarm = report().alarm
    assert alarm
    assert "load" in alarm.reason
    assert "features" in alarm.kinds
    passed = _checks(world)
    assert not passed["drift_features"]
    assert passed["drift_nulls"]
    assert [one.period for one in report().history][-1] == "2024-04-22"


def test_the_alarm_is_kept_through_cooldown_and_budget(world: World) -> None:
    now = datetime.now(UTC)
    earlier = _training_that_drift_asked_for(world)
    kept = str(at(world, now).skip_reason)
    assert "is kept" in kept
    assert "the cooldown of 1 hour ends at" in kept
    later = str(at(world, now + timedelta(hours=2)).skip_reason)
    assert "drift may ask for 1 in a day, and has" in later
    (request,) = at(world, now + timedelta(hours=25)).run_requests or ()
    assert request.tags["trigger"] == "drift", "after both, the alarm is acted on"
    world.instance.delete_run(earlier)


def test_a_report_that_cannot_be_made_holds_up_no_alarm_that_stands(world: World) -> None:
    spec = world.folder / "defs.yaml"
    good = spec.read_text()
    spec.write_text(good.replace("around: 0", "around: 1"))  # the report is due anew
    now, asked = datetime.now(UTC), at(world, datetime.now(UTC))
    died: list[str] = []
    request = next(iter(asked.run_requests or ()))
    while request.job_name == "deliveries__drift":
        job = world.defs.resolve_job_def("deliveries__drift")
        tags = {**request.tags, "dagster/run_key": str(request.run_key)}
        run = world.instance.create_run_for_job(job, tags=tags)
        world.instance.report_run_failed(run, "the machine went down")
        died.append(run.run_id)
        asked = at(world, now, asked.cursor)
        request = next(iter(asked.run_requests or ()))
    assert len(died) == 3
    assert request.job_name == "deliveries__refresh"
    assert "drift in" in request.tags["why"]
    spec.write_text(good)
    for one in died:
        world.instance.delete_run(one)


def test_the_alarm_trains_a_model_that_says_why_and_then_it_is_quiet(world: World) -> None:
    before = report().model
    (request,) = world.asks_for(SENSOR)
    assert request.job_name == "deliveries__refresh"
    assert request.tags["trigger"] == "drift"
    assert "drift in" in request.tags["why"]
    assert "load" in request.tags["why"]
    assert world.execute(request)
    assert world.as_of() == "2024-04-22"
    store = open_snapshots(read_settings().snapshots)
    assert champion(read(store, "deliveries")) != before
    assert "no longer the release" in world.says(SENSOR)
    assert world.settle(LANDING) == [], "no week has come that the new release has not seen"


def test_a_baseline_that_is_not_the_certified_one_is_refused(world: World) -> None:
    store = open_snapshots(read_settings().snapshots)
    model = champion(read(store, "deliveries"))
    assert model
    origin = find_origin(store, "deliveries", model)
    assert origin
    forged = {**origin.report.attributes, "baseline": "0" * 64}
    with pytest.raises(StorageError, match="is not the baseline of model"):
        read_baseline(
            store, replace(origin, report=origin.report.model_copy(update={"attributes": forged}))
        )


def _training_that_drift_asked_for(world: World) -> str:
    """A run that was asked for just now, and failed: it counts all the same."""
    job = world.defs.resolve_job_def("deliveries__refresh")
    run = world.instance.create_run_for_job(job, tags={**job.run_tags, "trigger": "drift"})
    world.instance.report_run_failed(run)
    return run.run_id


def _last_key(world: World) -> str:
    (run,) = world.instance.get_runs(filters=dg.RunsFilter(job_name="deliveries__drift"), limit=1)
    return run.tags["dagster/run_key"]


def _checks(world: World) -> dict[str, bool]:
    """Check -> whether it passed, as the UI shows it."""
    key = dg.AssetKey(["deliveries", "drift_report"])
    keys = [dg.AssetCheckKey(key, name) for name in CHECKS.values()]
    latest = world.instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    found: dict[str, bool] = {}
    for check, record in latest.items():
        assert record.event
        assert record.event.dagster_event
        evaluation = record.event.dagster_event.asset_check_evaluation_data
        assert evaluation.severity == dg.AssetCheckSeverity.WARN
        assert evaluation.description
        found[check.name] = evaluation.passed
    return found
