"""What was measured on recalled data decides nothing: spreads, winners, traffic, old decisions."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from ml_assets.assets.evaluation_report.drift_baseline import PeriodLoss
from ml_assets.assets.evaluation_report.seed_spread import known_spread, spread_file, trained_alike
from ml_assets.assets.released_model.gate_decision import current_evidence
from ml_assets.assets.released_model.promote import Released, release
from ml_assets.assets.trained_model.train_and_publish import Training
from ml_assets.automation.planner.selection import gate_is_due
from ml_assets.errors import Recalled, StorageError
from ml_assets.extras.recall.recall import extent
from ml_assets.extras.serving.online_evaluation.loss import OnlineReport, ServedLoss
from ml_assets.extras.serving.online_evaluation.verdict import canary_verdict, online_reports
from ml_assets.graph.code_version import code_version_of
from ml_assets.records.ledger.chain import read, record_decision
from ml_assets.spec.base import canonical_json
from ml_assets.spec.load import load_spec
from ml_assets.spec.records import Decision, Evidence, InputVersion, Interval, SeedSpread
from ml_assets.spec.study_record import parted_by
from ml_assets.store.pipeline_context import Pipeline, open_pipeline
from ml_assets_tests.assets.released_model.recall_walk import BAD, GOOD, OTHER, TABLE, Walk
from ml_assets_tests.records.conftest import A, B, gate
from ml_assets_tests.worlds import deliveries, searched
from ml_assets_tests.worlds.world import World


@dataclass(frozen=True)
class Place:
    """A pipeline that nothing ran of, and its store, with no more than records in it."""

    world: World
    name: str
    walk: Walk

    @property
    def pipeline(self) -> Pipeline:
        return open_pipeline(self.name, self.world.settings)

    def make(self, stage: str, version: str, *inputs: InputVersion, **more: Any) -> InputVersion:
        return self.walk.make(f"{self.name}/{stage}", version, *inputs, **more)

    def put(self, path: str, content: bytes) -> None:
        with self.walk.store.open(self.walk.head, path) as workspace:
            workspace.put_bytes(path, content)
            workspace.commit(path, {})
            workspace.publish()


@pytest.fixture
def irises(tmp_path: Path) -> Place:
    """Irises with a search whose winner is adopted; the training set is of bad data."""
    world = searched.plant(tmp_path)
    place = Place(world, "irises", Walk(Path(world.settings.snapshots)))
    raw = place.make("raw_snapshot/raw_flowers", BAD)
    data = place.make("training_set", OTHER, place.make("validated_table/flowers", TABLE, raw))
    values = {"training.learning_rate": 0.01, "model.width": 8, "model.dropout": 0.0}
    found = {"study": "irises-1", "trial": 3, "space": "5" * 64, "values": values}
    found["split"] = parted_by(load_spec(world.pipelines / "irises"))
    place.make("hyperparameter_search", "d" * 64, data, attributes=found)
    return place


def test_a_spread_over_seeds_of_recalled_data_is_measured_anew(irises: Place) -> None:
    pipeline = irises.pipeline
    seen = SeedSpread(spec=trained_alike(pipeline), data=OTHER, seeds=(0, 1), loss=1e-9, metrics={})
    report = pipeline.address("evaluation_report")
    irises.put(report.file(spread_file(pipeline)), canonical_json(seen))
    assert known_spread(pipeline.now()) == seen
    irises.walk.recall(BAD)
    irises.make("training_set", GOOD, irises.make("raw_snapshot/raw_flowers", GOOD))
    assert known_spread(pipeline.now()) is None


def test_the_winner_of_a_recalled_search_is_not_adopted(irises: Place) -> None:
    irises.walk.recall(BAD)
    irises.make("training_set", GOOD, irises.make("raw_snapshot/raw_flowers", GOOD))
    pipeline = irises.pipeline
    assert pipeline.winner is not None
    nobody = cast(Any, None)
    with pytest.raises(
        Recalled, match="The search irises-1 read data that is recalled by ann"
    ) as e:
        Training.of(nobody, pipeline, None, None, nobody)
    assert "ml-assets run irises --search; or set `adopt: false` in search.yaml" in str(e.value)


def test_the_way_back_from_a_search_that_is_adopted_begins_with_another(irises: Place) -> None:
    back = "repair the source first; then: ml-assets run irises"
    look = ("data", "recall", BAD[:10], "--dry-run")
    assert f"{back} --search\n" in irises.world.cli(*look)
    search = irises.pipeline.folder / "search.yaml"
    search.write_text(search.read_text().replace("adopt: true", "adopt: false"))
    assert f"{back}\n" in irises.world.cli(*look)


def test_the_gates_are_due_again_when_the_only_champion_since_is_recalled(irises: Place) -> None:
    def judge(model: str, data: InputVersion) -> Evidence:
        made = irises.make("trained_model", model, data, attributes={"data": {"digest": OTHER}})
        irises.make("evaluation_report", model, made)
        state = irises.pipeline.now()
        evidence = current_evidence(state, read(state.store, state.name))
        record_decision(state.store, decision(evidence), "me")
        return evidence

    def decision(about: Evidence) -> Decision:
        said = {"pipeline": "irises", "evidence": about, "gates": (gate(),), "passed": True}
        return Decision(**said, reason="all passed", run="r", time=datetime.now(UTC))

    sound = irises.make("training_set", GOOD)
    judge(A, sound)
    first = (
        irises.walk.record("irises/trained_model"),
        irises.walk.record("irises/evaluation_report"),
    )
    bad = irises.make("training_set", OTHER, irises.make("raw_snapshot/raw_flowers", BAD))
    spec = irises.pipeline.spec.release
    moved = release(irises.walk.store, "irises", judge(B, bad), spec, "ann", "r")
    assert isinstance(moved, Released)
    irises.walk.recall(BAD)
    for record in first:
        irises.make(
            record.key.split("/")[1],
            record.data_version,
            *record.inputs,
            attributes=record.attributes,
        )
    assert gate_is_due(irises.pipeline) == "another model became champion"
    state = irises.pipeline.now()
    record_decision(
        state.store, decision(current_evidence(state, read(state.store, state.name))), "me"
    )
    assert gate_is_due(irises.pipeline) == ""


def test_a_period_whose_features_are_recalled_hides_no_loss_of_a_canary(tmp_path: Path) -> None:
    world = World(tmp_path).plant(deliveries)
    place = Place(world, "deliveries", Walk(Path(world.settings.snapshots)))
    for week, content, worse in (("2024-01-08", GOOD, 0.2), ("2024-01-15", BAD, -0.4)):
        raw = place.make("raw_snapshot/raw_orders", content, partition=week)
        features = place.make("feature_set", content, raw, partition=week)
        code = code_version_of(place.pipeline, "online_evaluation")
        place.make("online_evaluation", content, features, partition=week, code_version=code)
        address = place.pipeline.address("online_evaluation", partition=week)
        place.put(address.file("report.json"), canonical_json(traffic(week, worse)))
    assert canary_verdict(online_reports(place.pipeline.now()), B, A).passed
    place.walk.recall(BAD)
    assert not canary_verdict(online_reports(place.pipeline.now()), B, A).passed


def traffic(week: str, worse: float) -> OnlineReport:
    """A period in which model B in canary did so much worse than A in production."""
    did = (("canary", B, 0.4 + worse), ("production", A, 0.4))
    models = tuple(
        ServedLoss.model_validate(
            {
                "stage": stage,
                "model": model,
                "units": 400,
                "loss": Interval(value=mean, low=mean - 0.02, high=mean + 0.02),
                "told": PeriodLoss(period=week, units=400, blocks=7, mean=mean, error=0.01),
            }
        )
        for stage, model, mean in did
    )
    return OnlineReport(
        pipeline="deliveries",
        period=week,
        loss="log-loss",
        labelled=800,
        models=models,
        difference=None,
    )


@pytest.mark.parametrize(
    ("named", "hint"),
    [
        ("raw_snapshot/raw_flower@5a1bec29", "Did you mean 'irises/raw_snapshot/raw_flowers'?"),
        ("training_set/2024@5a1bec29", "Did you mean 'irises/training_set'?"),
        ("training_set/all@5a1bec29", f"training_set/all has, newest first: {OTHER[:12]}."),
        ("training_set", f"irises/training_set has, newest first: {OTHER[:12]}."),
    ],
)
def test_a_name_that_is_not_there_is_told_the_nearest_one(
    irises: Place, named: str, hint: str
) -> None:
    with pytest.raises(StorageError, match=re.escape(hint)):
        extent(irises.pipeline.store, f"irises/{named}")
