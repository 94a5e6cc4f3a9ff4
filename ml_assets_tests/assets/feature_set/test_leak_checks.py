"""Leak guards in real runs: what leaks is not published, whatever path leads there."""

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest

from ml_assets.adapters.execute import execute
from ml_assets.adapters.runs import Selection
from ml_assets.assets.training_set import shards
from ml_assets.assets.training_set.encoded_set import (
    EncodedSet,
    encode_window,
    publish_set,
    shards_in_words,
)
from ml_assets.assets.training_set.fitting import Fitted
from ml_assets.assets.training_set.read_split import Part, SplitRows
from ml_assets.automation.planner.selection import leak_keys
from ml_assets.definitions import build
from ml_assets.errors import RunFailed
from ml_assets.graph.publish import Work
from ml_assets.spec.records import StageRecord
from ml_assets.spec.training_program import Ref, Split
from ml_assets.store.layout import Address, published_partitions, read_record
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.world import World

NAME = "deliveries"
FIRST, LAST = "2024-02-12", "2024-03-18"
"""Six weeks: two to train on, one to validate, one to hold out, and one between each."""
HONEST = '.with_columns(pl.col("docks").cast(pl.Float64))\n'
SPLITS: tuple[Split, ...] = ("train", "validation", "holdout")
CHECKS = ["no_shared_keys", "split_in_order", "no_shared_rows", "no_target_proxy"]
CHECKS += ["fitted_on_train", "splits_alike"]
DEPOTS = """depot,docks,changed_at
north,4,2023-01-01T00:00:00Z
south,2,2023-01-01T00:00:00Z
west,9,2023-01-01T00:00:00Z
north,7,2024-02-20T00:00:00Z
"""
SPEC = (
    deliveries.SPEC.replace("docks: int64}", "docks: int64, changed_at: datetime}")
    .replace("key: [depot]\n", "key: [depot, changed_at]\n      known_at: changed_at\n")
    .replace("train: 6, validation: 1, holdout: 2", "train: 2, validation: 1, holdout: 1")
)
FEATURES = deliveries.FEATURES.replace(
    'tables["depots"],',
    """tables["depots"].filter(pl.col("changed_at") < known).sort("changed_at")
            .unique("depot", keep="last"),""",
).replace("    recent =", "    known = window.start\n    recent =")


class Steps:
    """Materializes single assets of a world as a click does, and tells what their checks said."""

    def __init__(self, world: World) -> None:
        self.world = world

    def declare(self, last: str = HONEST, change: Callable[[str], str] = str) -> None:
        """Write the feature function anew with its last step, and the spec with one change."""
        folder = self.world.pipelines / NAME
        (folder / "defs.yaml").write_text(change(SPEC))
        (folder / "features.py").write_text(FEATURES.replace(HONEST, last))

    def make(self, stage: str) -> str:
        """Materialize a stage; the error, or nothing."""
        span = (FIRST, LAST) if stage == "feature_set" else None
        selection = Selection((self._key(stage),), tuple(self._checks(stage)), span)
        defs = build(self.world.settings, only=NAME)
        with self.world.instance() as instance:
            try:
                execute(defs, instance, NAME, selection, lambda _: None)
            except RunFailed as error:
                return str(error)
        return ""

    def failed(self, stage: str) -> list[str]:
        """The checks that did not pass in the last run; every one has been evaluated."""
        with self.world.instance() as instance:
            (run,) = instance.get_runs(limit=1)
            kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION
            logged = instance.all_logs(run.run_id, of_type=kind)
        found = [e.dagster_event.asset_check_evaluation_data for e in logged if e.dagster_event]
        assert {one.asset_check_key for one in found} == set(self._checks(stage))
        return sorted({one.check_name for one in found if not one.passed})

    def features(self) -> dict[str, str]:
        """Partition -> version."""
        place = open_pipeline(NAME, self.world.settings)
        main = place.store.resolve("main")
        records = published_partitions(place.store, main, Address(NAME, "feature_set"))
        return {key: record.data_version for key, record in records.items()}

    def training_set(self) -> StageRecord | None:
        place = open_pipeline(NAME, self.world.settings)
        return read_record(place.store, place.store.resolve("main"), Address(NAME, "training_set"))

    def _key(self, stage: str) -> dg.AssetKey:
        return dg.AssetKey([NAME, stage])

    def _checks(self, stage: str) -> list[dg.AssetCheckKey]:
        if stage == "feature_set":
            names = ("no_future_events", "parity")
            return [dg.AssetCheckKey(self._key(stage), name) for name in names]
        return list(leak_keys(open_pipeline(NAME, self.world.settings)))


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Steps]:
    """Twelve weeks of orders, held to their contracts; no features yet."""
    world = World(tmp_path_factory.mktemp("leaks")).plant(deliveries)
    (world.sources / "depots.csv").write_text(DEPOTS)
    (world.pipelines / NAME / "defs.yaml").write_text(SPEC)
    unique = json.loads((world.pipelines / NAME / "depots.json").read_text())
    unique["expectations"][0]["type"] = "expect_column_values_to_not_be_null"
    (world.pipelines / NAME / "depots.json").write_text(json.dumps(unique))
    world.cli("run", NAME, "--through", "derived_table")
    with pytest.MonkeyPatch.context() as environment:
        for name, value in world.environment.items():
            environment.setenv(name, value)
        yield Steps(world)


# --- feature_set ----------------------------------------------------------------------------------

OWN_ARRIVAL = """.with_columns(pl.col("docks").cast(pl.Float64)).join(
            tables["arrivals"].select("order", pl.col("arrived_at").dt.hour().alias("hour")),
            on="order", how="left",
        ).with_columns(load=pl.col("hour").cast(pl.Float64))
"""
TO_THE_END_OF_THE_WEEK = """.join(
            tables["closed_orders"]
            .filter(pl.col("arrived_at") < window.end)
            .select(pl.len().alias("closed")), how="cross",
        ).with_columns(docks=pl.col("closed").cast(pl.Float64))
"""
ONLY_WITH_AN_OUTCOME = """.with_columns(pl.col("docks").cast(pl.Float64)).drop_nulls("late")
"""
THE_NEWEST_DOCKS = """.drop("docks").join(
            tables["depots"].sort("changed_at").unique("depot", keep="last"), on="depot", how="left"
        ).with_columns(pl.col("docks").cast(pl.Float64))
"""


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (THE_NEWEST_DOCKS, "features change: docks ("),
        (OWN_ARRIVAL, "features change: load ("),
        (TO_THE_END_OF_THE_WEEK, "features change: docks ("),
        (ONLY_WITH_AN_OUTCOME, "gone, «(order "),
    ],
)
def test_features_that_saw_the_future_are_not_published(steps: Steps, last: str, said: str) -> None:
    before = steps.features()
    steps.declare(last)
    error = steps.make("feature_set")
    assert said in error
    assert f"{NAME}/feature_set [{FIRST}]: 1 leak guard failed; nothing was published" in error
    assert f"[{FIRST}] leaks" in error, "the same function makes no other week either"
    assert steps.features() == before
    assert "no_future_events" in steps.failed("feature_set"), "parity draws its rows by chance"


def test_a_column_of_after_the_event_is_read_by_no_feature(steps: Steps) -> None:
    def declared(spec: str) -> str:
        late = "contract: arrivals.json\n      after_event: [late]"
        return spec.replace("contract: arrivals.json", late)

    steps.declare(change=declared)
    before = steps.features()
    error = steps.make("feature_set")
    assert "and the columns arrivals.late, features change: recent_late (" in error
    assert steps.features() == before
    assert steps.failed("feature_set") == ["no_future_events"], "no other check sees it"
    loose = "leaks: {future_events: {severity: warning}}\n  label:"
    steps.declare(change=lambda spec: declared(spec).replace("label:", loose))
    assert steps.make("feature_set") == ""
    assert steps.failed("feature_set") == ["no_future_events"], "it warns, and publishes"
    steps.declare(".with_columns(docks=pl.lit(1.0), recent_late=pl.lit(0.5))\n", declared)
    assert steps.make("feature_set") == ""
    assert steps.failed("feature_set") == []


# --- training_set ---------------------------------------------------------------------------------

KEYS_COME_AGAIN = HONEST.rstrip() + '.with_columns(pl.col("order") % 240)\n'
ELSEWHERE_IN_THE_END = """.with_columns(
            pl.col("docks").cast(pl.Float64),
            depot=pl.lit("harbour") if window.start.month == 3 else pl.col("depot"),
        )
"""
BIAS_BLOCKS = "leaks: {split_bias: {severity: critical}}\n  label:"


def test_sound_rows_pass_every_guard_and_the_record_says_so(steps: Steps) -> None:
    steps.declare()
    assert steps.make("feature_set") == ""
    assert steps.failed("feature_set") == []
    assert steps.make("training_set") == ""
    assert steps.failed("training_set") == []
    record = steps.training_set()
    assert record is not None
    assert sorted(record.attributes["leaks"]) == sorted(CHECKS)
    assert all(found["passed"] for found in record.attributes["leaks"].values())


@pytest.mark.parametrize(
    ("last", "guards", "guard", "said"),
    [
        (
            KEYS_COME_AGAIN,
            "",
            "no_shared_keys",
            "240 values of ['order'] are in train and in validation",
        ),
        (ELSEWHERE_IN_THE_END, BIAS_BLOCKS, "splits_alike", "«'harbour'» in 100.0%"),
    ],
)
def test_a_leaking_training_set_is_refused_by_its_guard_alone(
    steps: Steps, last: str, guards: str, guard: str, said: str
) -> None:
    steps.declare(last, lambda spec: spec.replace("label:", guards) if guards else spec)
    assert steps.make("feature_set") == ""
    before = steps.training_set()
    error = steps.make("training_set")
    assert f"{NAME}/training_set: 1 leak guard failed; nothing was published" in error
    assert f"{guard}: " in error
    assert said in error
    assert steps.training_set() == before
    assert steps.failed("training_set") == [guard]


def test_a_set_whose_preprocessing_saw_other_rows_is_refused(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps.declare()
    assert steps.make("feature_set") == ""
    before, fit = steps.training_set(), shards.fit
    seen: list[int] = []

    def on_all(train: SplitRows, *more: Any) -> Fitted:
        others = train.parts[0].rows.with_columns(pl.col("load") * 3).head(200)
        every = SplitRows((*train.parts, Part(others)))
        seen.append(len(every) - len(train))
        return fit(every, *more)

    monkeypatch.setattr(shards, "fit", on_all)
    error = steps.make("training_set")
    assert seen == [200], "the fault was planted"
    assert "fitted_on_train: " in error
    assert "load: mean" in error
    assert steps.training_set() == before
    assert steps.failed("training_set") == ["fitted_on_train"]


CUSTOMERS = HONEST.rstrip() + '.with_columns(customer=pl.col("order") % 850)\n'


def test_a_split_by_time_and_entity_keeps_each_customer_on_one_side(
    steps: Steps,
) -> None:
    by_customer = "split: {kind: time+group, groups: [customer], keep: first,"
    steps.declare(CUSTOMERS, lambda spec: spec.replace("split: {kind: time,", by_customer))
    assert steps.make("feature_set") == ""
    assert steps.make("training_set") == ""
    assert steps.failed("training_set") == []
    record = steps.training_set()
    assert record is not None
    ref = Ref(uri=record.attributes["uri"], digest=record.attributes["digest"])
    rows = {name: shards.read_rows(ref, shards.load_schema(ref), name) for name in SPLITS}
    seen = [set(frame["customer"]) for frame in rows.values()]
    assert not (seen[0] & seen[1] or seen[1] & seen[2] or seen[0] & seen[2])
    assert len(rows["train"]) == 2 * 240
    assert 0 < len(rows["holdout"]) < 240


# --- the next window ------------------------------------------------------------------------------


def test_the_next_window_encodes_the_shard_of_one_partition_and_is_as_from_nothing(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps.declare(change=lambda spec: spec.replace("train: 2,", "train: 1,"))
    assert steps.make("feature_set") == ""
    first, second = (str(date.fromisoformat(LAST) - timedelta(weeks=n)) for n in (1, 0))

    def encoded(as_of: str) -> EncodedSet:
        pipeline = open_pipeline(NAME, steps.world.settings)
        state = pipeline.at(pipeline.store.resolve("main"))
        made = encode_window(dg.build_asset_context().log, state, as_of)
        work = Work(Address(NAME, "training_set"), as_of, made.inputs, "run")
        publish_set(state, work, made)
        return made

    before = encoded(first)
    assert before.written.shards == 5
    after = encoded(second)
    assert shards_in_words(after.written) == "5 shards: 1 encoded, 4 as in the set before"
    assert len(after.schema.shards) == 3, "the embargo's partitions are in no split"
    assert before.ref != after.ref
    again = encoded(second)
    assert (again.written.encoded, again.ref) == (0, after.ref)

    objects = steps.world.root / "state" / "objects"
    shutil.move(objects / "shards", tmp_path / "shards")
    anew = encoded(second)
    assert (anew.written.encoded, anew.ref) == (5, after.ref), "what is gone is made again"
