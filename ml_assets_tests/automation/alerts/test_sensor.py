"""The alerts sensor tells of what is really wrong in a real instance, each cause once."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest

from ml_assets.adapters.runs import open_instance
from ml_assets.assets.validated_table.contract.compiled import audit
from ml_assets.assets.validated_table.contract.suite import read_contract
from ml_assets.assets.validated_table.quarantine import HELD_BACK, REASON
from ml_assets.automation.alerts.causes import causes_now
from ml_assets.automation.alerts.media import recipients
from ml_assets.automation.alerts.reported import KEY, OpenCause, Told
from ml_assets.automation.alerts.sensor import alerts_tick
from ml_assets.automation.freshness import CHECK as FRESHNESS
from ml_assets.automation.late_runs import late_runs_tick
from ml_assets.definitions import build
from ml_assets.records.tracking.links import Links
from ml_assets.settings import read_settings
from ml_assets_tests.automation.conftest import Plant, World
from ml_assets_tests.conftest import Cli
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.listeners import Webhook, webhook
from ml_assets_tests.worlds.ticks import switch, tick

WEEK = "2024-01-08"
JANE, SSN, PAY = "jane.quux@example.org", "078-05-1120", 71234
PEOPLE = pl.DataFrame({"mail": [JANE, SSN], "pay": [PAY, PAY]})
OF_PEOPLE: list[tuple[str, dict[str, Any]]] = [
    ("column_distinct_values_to_be_in_set", {"column": "mail", "value_set": ["a", "b"]}),
    ("column_distinct_values_to_equal_set", {"column": "mail", "value_set": ["a", "b"]}),
    ("column_min_to_be_between", {"column": "pay", "max_value": 100}),
    ("column_max_to_be_between", {"column": "pay", "max_value": 100}),
    ("column_median_to_be_between", {"column": "pay", "max_value": 100}),
    ("column_values_to_be_between", {"column": "pay", "max_value": 100}),
    ("column_values_to_be_in_set", {"column": "mail", "value_set": ["a", "b"]}),
    ("column_values_to_match_regex", {"column": "mail", "regex": "^x"}),
    ("column_values_to_be_unique", {"column": "pay"}),
    ("column_values_to_be_null", {"column": "mail"}),
]


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("ML_ASSETS_UI_URL", "https://dagster.example.org")
    with webhook() as found:
        monkeypatch.setenv("ML_ASSETS_ALERTS", found.url)
        yield found


def now() -> datetime:
    return datetime.now(UTC)


def look(world: World, at: datetime | None = None) -> str:
    """One tick of the sensor; what it says it did."""
    settings = read_settings()
    repository = world.defs.get_repository_def()
    to = recipients(settings.alerts)
    done = alerts_tick(world.instance, repository, to, Links.of(settings), at or now())
    assert isinstance(done.skip_reason, dg.SkipReason)
    return str(done.skip_reason.skip_message)


def told_of_rows(hook: Webhook) -> list[str]:
    """What of a person's row came in any byte of any request; a run's id may hold three digits."""
    parts = ("jan", "quux", 'example.org"', "078-05", "05-1120", "71234")
    return [part for part in parts if part in hook.raw.decode()]


def kinds(hook: Webhook) -> list[str]:
    return [body["kind"] for body in hook.bodies]


def spoil(world: World, week: str, before: str, after: str) -> None:
    file = world.sources / "orders" / f"{week}.csv"
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


@pytest.mark.daemon
def test_a_failed_contract_is_told_once_with_its_partition_and_is_gone_when_it_passes(
    plant: Plant, hook: Webhook
) -> None:
    """The first tick ends well though nobody listens, and the next one tells it."""
    world = plant(2, "{landing: {}}")
    spoil(world, WEEK, "north", "")
    world.settle()
    assert world.published("validated_table", "orders") == ["2024-01-01"]
    hook.faults.extend(("500", "500", "500"))
    said = "could not send all alerts: 1 open; webhook 127.0.0.1: it answered 500 (3 attempts)."
    assert look(world) == said
    look(world)
    (body,) = hook.bodies  # the run that failed by it is no second alert
    assert body["kind"] == "failed contract"
    assert f"deliveries/validated_table/orders [{WEEK}], check" in body["text"]
    link = "https://dagster.example.org/assets/deliveries/validated_table/orders?view=checks"
    assert body["link"] == link
    assert look(world) == "1 open."
    assert len(hook.bodies) == 1

    deliveries.land(world.sources, 2)
    world.settle()
    assert look(world) == "0 open; 1 gone."
    assert len(hook.bodies) == 1


def test_a_run_that_failed_for_another_reason_is_told_with_its_words_and_without_its_rows(
    plant: Plant, hook: Webhook
) -> None:
    world = plant(2, "{landing: {}}")
    file = world.sources / "arrivals" / f"{WEEK}.jsonl"
    deliveries.deliver(file, f'{{"order": "{JANE}", "ssn": "{SSN}')
    world.settle()
    look(world)
    assert kinds(hook) == ["failed run"]
    assert "deliveries__sources failed:" in hook.bodies[0]["text"]
    assert f"arrivals/{WEEK}.jsonl, line 1 is not valid JSON: …. One" in hook.bodies[0]["text"]
    assert hook.bodies[0]["link"].startswith("https://dagster.example.org/runs/")
    assert not told_of_rows(hook)
    assert JANE not in str(world.instance.daemon_cursor_storage.get_cursor_values({KEY}))
    run_id = hook.bodies[0]["link"].rpartition("/")[2]
    logged = str(world.instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE))
    assert JANE in logged, "where the link leads it is all there"


def test_a_run_that_never_started_is_told(plant: Plant, hook: Webhook) -> None:
    world = plant(2, "{landing: {}, start_within: 20 minutes}")
    job = world.defs.resolve_job_def("deliveries__sources")
    world.instance.create_run_for_job(job, tags=dict(job.run_tags))
    late = now() + timedelta(minutes=30)
    (event,) = late_runs_tick(world.graph, world.instance, None, late).asset_events
    assert isinstance(event, dg.AssetCheckEvaluation)
    world.instance.report_runless_asset_event(event)
    look(world)
    assert kinds(hook) == ["run that never started"]
    assert "has not begun" in hook.bodies[0]["text"]


def test_stale_data_is_told_until_it_is_made_again(plant: Plant, hook: Webhook) -> None:
    world = plant(2, "{landing: {}, freshness: {data: 2 days}}")
    key = dg.AssetKey(["deliveries", "feature_set"])
    assert look(world, now() + timedelta(days=3)) == "0 open."  # never made: not stale
    world.instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=WEEK))
    assert look(world) == "0 open."
    look(world, now() + timedelta(days=3))
    assert kinds(hook) == ["stale data"]
    assert "deliveries/feature_set was made at" in hook.bodies[0]["text"]
    assert look(world) == "0 open; 1 gone."


def scene(
    severity: dg.AssetCheckSeverity, stage: str, name: str = "moved"
) -> tuple[dg.RepositoryDefinition, Any]:
    """One asset with one check, and a function that reports what the check says."""
    key = dg.AssetKey(["flights", stage])

    @dg.asset_check(asset=key, name=name)
    def check() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    def evaluation(passed: bool, partition: str | None = None) -> dg.AssetCheckEvaluation:
        said = "PSI of distance is 0.4"
        return dg.AssetCheckEvaluation(
            key, name, passed, {}, severity=severity, description=said, partition=partition
        )

    return dg.Definitions(
        [dg.AssetSpec(key)], asset_checks=[check]
    ).get_repository_def(), evaluation


WARN, ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR


def test_what_a_contract_says_of_the_values_of_rows_reaches_nobody(hook: Webhook) -> None:
    contract = read_contract(
        {
            "name": "people",
            "expectations": [
                {"type": f"expect_{kind}", "kwargs": kwargs, "severity": "critical"}
                for kind, kwargs in OF_PEOPLE
            ],
        },
        "people.json",
    )
    found = audit(PEOPLE, contract)
    assert not any(result.passed for result in found.results)
    key = dg.AssetKey(["people", "validated_table"])
    specs = [dg.AssetCheckSpec(result.check_name, asset=key) for result in found.results]

    @dg.asset(key=key, check_specs=specs)
    def table() -> dg.MaterializeResult:
        return dg.MaterializeResult()

    repository = dg.Definitions([table]).get_repository_def()
    with dg.instance_for_test() as instance:
        for result in found.results:
            instance.report_runless_asset_event(
                dg.AssetCheckEvaluation(
                    key, result.check_name, result.passed, description=result.reason
                )
            )
        alerts_tick(instance, repository, recipients([hook.url]), Links("d", "r", "m"), now())
    (body,) = hook.bodies
    assert body["text"].count("check ") == len(OF_PEOPLE)
    assert "the greatest value of pay must be at most 100; it is …" in body["text"]
    assert "not of the set: …, …" in body["text"]
    assert "mail must match ^x: 0 of 2 rows meet this" in body["text"], (
        "what the contract names is told"
    )
    assert not told_of_rows(hook)
    reasons = found.quarantined[REASON].str.split(", ").explode()
    names = {result.check_name for result in found.results}
    assert set(reasons.str.strip_prefix(f"{HELD_BACK}: ").str.strip_suffix(" failed")) <= names


TOLD: list[tuple[str, str, dg.AssetCheckSeverity, list[str]]] = [
    ("drift_report", "moved", WARN, ["drift"]),
    ("drift_report", "moved", ERROR, ["drift"]),
    ("validated_table", FRESHNESS, WARN, ["stale data"]),
    ("validated_table", FRESHNESS, ERROR, ["stale data"]),
    ("validated_table", "moved", ERROR, ["failed contract"]),
    ("validated_table", "moved", WARN, []),
    ("raw_snapshot", "schema", ERROR, ["failed contract"]),
    ("raw_snapshot", "schema", WARN, []),
    ("evaluation_report", "moved", ERROR, ["failed check"]),
    ("evaluation_report", "moved", WARN, []),
]


def test_errors_are_told_and_of_warnings_those_of_drift_and_freshness() -> None:
    with dg.instance_for_test() as instance:
        for stage, name, severity, kind in TOLD:
            repository, evaluation = scene(severity, stage, name)
            instance.report_runless_asset_event(evaluation(False))
            found = causes_now(instance, repository, Links("d", "r", "m"), now())
            assert [cause.kind for cause in found] == kind, (stage, name, severity)
            assert all("PSI of distance is 0.4" in cause.what for cause in found)
            instance.report_runless_asset_event(evaluation(True))
            assert causes_now(instance, repository, Links("d", "r", "m"), now()) == []


def test_a_partition_that_failed_stays_told_when_the_next_one_passes() -> None:
    repository, evaluation = scene(ERROR, "validated_table")
    with dg.instance_for_test() as instance:
        instance.report_runless_asset_event(evaluation(False, "2024-01-01"))
        instance.report_runless_asset_event(evaluation(True, "2024-01-08"))
        (found,) = causes_now(instance, repository, Links("d", "r", "m"), now())
        assert "[2024-01-01]" in found.what


def test_what_somebody_elses_error_says_is_not_sent() -> None:
    @dg.asset
    def leaky() -> None:
        raise ValueError("postgres://ann:s3cr3t@host/db")

    defs = dg.Definitions(assets=[leaky])
    with dg.instance_for_test() as instance:
        job = defs.resolve_implicit_global_asset_job_def()
        job.execute_in_process(instance=instance, raise_on_error=False)
        (found,) = causes_now(instance, defs.get_repository_def(), Links("d", "r", "m"), now())
    assert found.kind == "failed run"
    assert "ValueError in step leaky" in found.what
    assert "s3cr3t" not in found.what


def test_the_sensor_is_there_where_somebody_is_to_be_told_and_holds_no_address(
    plant: Plant, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = plant(2, "{landing: {}}")
    orders = dg.AssetKey(["deliveries", "validated_table", "orders"])
    checks = sorted(world.defs.get_repository_def().asset_graph.asset_check_keys)
    check = next(key.name for key in checks if key.asset_key == orders)
    world.instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(orders, check, False, severity=ERROR, partition=WEEK)
    )
    monkeypatch.setenv("ML_ASSETS_ALERTS", f"{hook.url}/services/s3cr3t")
    definition = world.defs.resolve_sensor_def("alerts")
    assert "webhook 127.0.0.1" in str(definition.description)
    assert "s3cr3t" not in str(definition.description)
    with dg.build_sensor_context(
        instance=world.instance, repository_def=world.defs.get_repository_def()
    ) as context:
        tick = definition.evaluate_tick(context)
    assert kinds(hook) == ["failed contract"]
    assert hook.paths == ["/services/s3cr3t"]
    written = str(world.instance.daemon_cursor_storage.get_cursor_values({KEY}))
    assert "s3cr3t" not in f"{tick.skip_message}{written}"
    monkeypatch.delenv("ML_ASSETS_ALERTS")
    assert "alerts" not in [sensor.name for sensor in build(read_settings()).sensors or ()]


def test_the_list_says_when_the_sensor_looked(room: Path, cli: Cli) -> None:
    """What was mended since is still in it, and nobody can tell that from a list without a time."""
    room.mkdir()
    looked = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert "has no tick yet" in cli("ops", "alerts", "list").out
    cause = OpenCause(since=looked - timedelta(days=1), what="run 1 failed: no room")
    with open_instance() as instance:
        told = Told(open={"a": cause}).model_dump_json()
        instance.daemon_cursor_storage.set_cursor_values({KEY: told})
        tick(instance, switch(instance, "alerts"), looked)
    said = cli("ops", "alerts", "list").out
    assert said.startswith("2026-02-28 12:00 UTC  run 1 failed: no room  (notified: nobody)\n")
    assert "seen at the sensor's tick, 2026-03-01 12:00 UTC" in said
    with open_instance() as instance:
        instance.daemon_cursor_storage.set_cursor_values({KEY: Told().model_dump_json()})
    said = cli("ops", "alerts", "list").out
    assert said == "nothing was wrong at the sensor's last tick, 2026-03-01 12:00 UTC\n"
