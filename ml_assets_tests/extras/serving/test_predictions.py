"""What a server logged becomes a table by hour, each row once, and an abort is told."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import dagster as dg
import polars as pl
import pytest

from ml_assets.actions.home_page import Tile, states
from ml_assets.assets.released_model.promote import Released, release
from ml_assets.assets.released_model.rollback import abort
from ml_assets.automation import run_requests, run_retries
from ml_assets.definitions import build
from ml_assets.extras.serving.entry import CHECK, served_tick
from ml_assets.extras.serving.prediction_log import FOLDER, Answered, PredictionLog
from ml_assets.extras.serving.predictions.hour import typed_text
from ml_assets.records.ledger.audit import problems
from ml_assets.records.ledger.chain import read, record_decision
from ml_assets.records.ledger.stages import put_out_line, stages
from ml_assets.spec.gates import CanarySpec, ReleaseSpec
from ml_assets.spec.records import Evidence
from ml_assets.store.pipeline_context import Pipeline, open_pipeline
from ml_assets_tests.records.conftest import A, B, decision, evidence
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.world import World

ROLLOUT = "  release: {to: production, canary: {periods: 1}, rollout: {entity: [order]}}\n"
THEN = datetime.now(UTC) - timedelta(hours=3)
HOUR = f"{THEN:%Y-%m-%dT%H}"


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = World(tmp_path).plant(deliveries)
    spec = found.pipelines / "deliveries" / "defs.yaml"
    spec.write_text(spec.read_text() + ROLLOUT)
    return found


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def log(pipeline: Pipeline, *requests: str) -> None:
    """What one server writes of a few requests of two rows."""

    async def written() -> None:
        server = PredictionLog(pipeline)
        for request in requests:
            key, outputs = {"order": [7, 8]}, {"probability": [0.25, 0.5]}
            server.add(Answered(THEN, request, [0, 1], "canary", A, 0.004, key, outputs))
        await server.flush()
        server.close()

    asyncio.run(written())


def released(pipeline: Pipeline, about: Evidence, spec: ReleaseSpec) -> None:
    passed = decision(about).model_copy(update={"pipeline": pipeline.name})
    record_decision(pipeline.store, passed, "me")
    outcome = release(pipeline.store, pipeline.name, about, spec, author="me", run="")
    assert isinstance(outcome, Released)


def canary_tile(world: World) -> Tile:
    """Of the first page."""
    tiles = states(world.settings)["deliveries"].tiles
    return next(tile for tile in tiles if tile.name == "canary")


def make(world: World, hour: str) -> None:
    with dg.DagsterInstance.ephemeral() as instance, pytest.MonkeyPatch.context() as environment:
        world.enter(environment)
        defs = build(world.settings, only="deliveries")
        instance.add_dynamic_partitions("deliveries__served_hours", [hour])
        job = defs.resolve_job_def("deliveries__predictions")
        assert job.execute_in_process(instance=instance, partition_key=hour).success


def test_an_hour_that_is_over_becomes_a_table_with_each_row_once(
    world: World, instance: dg.DagsterInstance
) -> None:
    pipeline = open_pipeline("deliveries", world.settings)
    log(pipeline, "first", "second")
    log(pipeline, "third")
    (request,) = served_tick(pipeline, None, instance).run_requests or ()
    assert request.partition_key == HOUR
    make(world, HOUR)
    address = pipeline.address("predictions", partition=HOUR)
    rows = pipeline.now().scan(address).collect()
    assert rows["request"].to_list() == ["first", "first", "second", "second", "third", "third"]
    assert rows["key"].struct.field("order").to_list() == ["7", "8"] * 3
    assert rows["probability"].to_list() == [0.25, 0.5] * 3
    assert set(rows["stage"]) == {"canary"} and set(rows["model"]) == {A}
    record = pipeline.now().record(address)
    assert record and record.attributes["requests"] == 3
    assert [one.key for one in record.inputs] == ["served", "deliveries/trained_model"]
    assert record.inputs[1].version == A
    assert not list(pipeline.objects.path(FOLDER, "deliveries", HOUR).iterdir())
    assert not served_tick(pipeline, None, instance).run_requests

    log(pipeline, "late")  # a file that comes after is added
    make(world, HOUR)
    assert pipeline.now().scan(address).collect()["request"].n_unique() == 4


def test_an_hour_that_goes_on_waits(world: World, instance: dg.DagsterInstance) -> None:
    pipeline = open_pipeline("deliveries", world.settings)
    log(pipeline, "first")
    folder = pipeline.objects.path(FOLDER, "deliveries")
    (folder / HOUR).rename(folder / f"{datetime.now(UTC):%Y-%m-%dT%H}")
    assert not served_tick(pipeline, None, instance).run_requests


def test_an_hour_whose_run_failed_is_asked_for_again_after_a_wait_and_not_for_ever(
    world: World, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = open_pipeline("deliveries", world.settings)
    log(pipeline, "first")

    def tick() -> dg.SensorResult:
        found = served_tick(pipeline, None, instance)
        for one in found.run_requests or ():
            tags = {**one.tags, "dagster/run_key": str(one.run_key)}
            run = dg.DagsterRun("deliveries__predictions", str(uuid4()), tags=tags)
            instance.add_run(run.with_status(dg.DagsterRunStatus.FAILURE))
        return found

    def said() -> str:
        reason = tick().skip_reason
        return str(reason.skip_message if isinstance(reason, dg.SkipReason) else reason)

    assert tick().run_requests
    assert f"predictions [{HOUR}] failed in run" in said()
    assert "and is tried again in 1 minute." in said()
    monkeypatch.setattr(run_requests, "FIRST_WAIT", timedelta())
    again = [len(tick().run_requests or ()) for _ in range(run_retries.ATTEMPTS)]
    assert again == [1] * (run_retries.ATTEMPTS - 1) + [0]
    assert f"failed {run_retries.ATTEMPTS} times" in said()
    log(pipeline, "late")
    assert tick().run_requests, "it has other files"
    (newest,) = instance.get_runs(limit=1)
    instance.add_run(
        dg.DagsterRun(newest.job_name, str(uuid4()), tags=newest.tags).with_status(
            dg.DagsterRunStatus.CANCELED
        )
    )
    assert "was cancelled in run" in said()


def test_what_waits_too_long_is_counted_and_what_failed_to_be_written_waits(world: World) -> None:
    pipeline = open_pipeline("deliveries", world.settings)
    folder = pipeline.objects.path(FOLDER)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("no folder")

    async def written() -> None:
        server = PredictionLog(pipeline, most=2)
        for request, later in (("first", 0), ("second", 1), ("third", 1)):
            at, said = THEN + timedelta(hours=later), {"probability": [1.0]}
            server.add(Answered(at, request, [0], "canary", A, 0.004, {}, said))
        assert server.lost == 1
        with pytest.raises(OSError):
            await server.flush()
        folder.unlink()
        await server.flush()
        server.close()

    asyncio.run(written())
    parts = sorted(pipeline.objects.path(FOLDER, "deliveries").glob("*/*.parquet"))
    assert [pl.read_parquet(part)["request"].to_list() for part in parts] == [["first"], ["second"]]


def test_the_rows_that_wait_are_counted_and_not_their_requests(world: World) -> None:
    pipeline = open_pipeline("deliveries", world.settings)

    async def written() -> int:
        server = PredictionLog(pipeline, most=10)
        said = {"probability": [0.5] * 8}
        for request in ("first", "second"):
            server.add(Answered(THEN, request, range(8), "canary", A, 0.1, {}, said))
        await server.flush()
        server.add(Answered(THEN, "third", range(8), "canary", A, 0.1, {}, said))
        await server.flush()
        server.close()
        return server.lost

    assert asyncio.run(written()) == 8
    parts = pipeline.objects.path(FOLDER, "deliveries").glob("*/*.parquet")
    assert pl.concat(map(pl.read_parquet, sorted(parts)))["request"].unique().sort().to_list() == [
        "first",
        "third",
    ]


def test_half_a_character_keeps_no_row_from_the_log(world: World) -> None:
    pipeline = open_pipeline("deliveries", world.settings)

    async def written() -> None:
        server, key = PredictionLog(pipeline), {"order": ["7\ud800", 8]}
        server.add(Answered(THEN, "first", [0, 1], "canary", A, 0.1, key, {"probability": [1, 0]}))
        await server.flush()
        server.close()

    asyncio.run(written())
    (part,) = pipeline.objects.path(FOLDER, "deliveries").glob("*/*.parquet")
    assert pl.read_parquet(part)["key"].struct.field("order").to_list() == ["7?", "8"]


def test_an_abort_is_a_line_and_told_once_and_the_model_stays_out(
    world: World, instance: dg.DagsterInstance
) -> None:
    pipeline = open_pipeline("deliveries", world.settings)
    released(pipeline, evidence(A), ReleaseSpec())
    released(pipeline, evidence(B, champion=A), ReleaseSpec(canary=CanarySpec()))
    assert canary_tile(world).value == "5% of traffic"
    quiet = served_tick(pipeline, None, instance)
    assert not quiet.asset_events
    assert abort(pipeline, A, "ada", "it is the champion") is None, "only what is on its way"
    line = abort(pipeline, B, "ada", "in its traffic as canary: errors")
    assert line and line.kind == "abort"
    assert abort(pipeline, B, "ada", "again") is None
    entries = read(pipeline.store, "deliveries")
    assert stages(entries) == {"production": A}
    assert problems(entries) == ()
    assert put_out_line(entries, B) == line
    told = served_tick(pipeline, quiet.cursor, instance)
    (evaluation,) = told.asset_events
    assert isinstance(evaluation, dg.AssetCheckEvaluation)
    assert (evaluation.check_name, evaluation.passed) == (CHECK, False)
    assert "errors" in (evaluation.description or "")
    assert not served_tick(pipeline, told.cursor, instance).asset_events
    assert (canary_tile(world).value, "errors" in canary_tile(world).below) == ("out", True)


@pytest.mark.parametrize(
    ("text", "dtype", "typed"),
    [
        (["7", "7.0", "1545.00", "7.5", "x"], pl.Int64(), [7, 7, 1545, None, None]),
        (["True", "true", "1", "False", "0"], pl.Boolean(), [True, True, True, False, False]),
        (["2024-05-01", "soon"], pl.Date(), [date(2024, 5, 1), None]),
        (["7", "7.5"], pl.Float64(), [7.0, 7.5]),
        (["7", "a"], pl.String(), ["7", "a"]),
        (
            ["2024-05-01T05:00:00", "2024-05-01 05:00", "2024-05-01T07:00:00+02:00", "soon"],
            pl.Datetime("us", "UTC"),
            [datetime(2024, 5, 1, 5, tzinfo=UTC)] * 3 + [None],
        ),
        (
            ["2024-05-01 05:00:00+00:00", "2024-05-01T05:00:00.000Z", "2024-05-01T05:00:00", None],
            pl.Datetime("us", "UTC"),
            [datetime(2024, 5, 1, 5, tzinfo=UTC)] * 3 + [None],
        ),
        (
            ["2024-05-01", "2024-05-01T00:00:00Z"],
            pl.Datetime("ms", "UTC"),
            [datetime(2024, 5, 1, tzinfo=UTC)] * 2,
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, pl.DataType) else "",
)
def test_a_key_is_what_the_features_have_however_a_caller_wrote_it(
    text: list[str], dtype: pl.DataType, typed: list[object]
) -> None:
    frame = pl.DataFrame({"key": text}).select(typed_text(pl.col("key"), dtype))
    assert frame["key"].to_list() == typed
