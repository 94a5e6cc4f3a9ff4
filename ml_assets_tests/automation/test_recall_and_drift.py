"""A recall of the rows that a release was trained on: what takes its place is not held up."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from ml_assets.actions.run.due import due_now
from ml_assets.actions.run.run import Request
from ml_assets.assets.drift_report import windows
from ml_assets.automation.planner import candidate_runs
from ml_assets.automation.planner.candidate_runs import CANARY, before_the_model
from ml_assets.errors import Recalled
from ml_assets.store.layout import Address, read_record
from ml_assets.store.open import open_snapshots
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.automation.conftest import World as Watched
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

WATCHED = "  drift: {rows: 50}\n  automation: {landing: {retrain: true}}\n"
SAID = ("--author", "ann", "--reason", "the scale was off")


@pytest.fixture
def recalled(released: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The released irises, watched for drift; their flowers are recalled, and mended.

    Their release has no baseline: it came before they were watched.
    """
    monkeypatch.setattr(windows, "read_baseline", lambda *_: object())
    for name in ("state", "sources", "pipelines"):
        shutil.copytree(released.root / name, tmp_path / name)
    world = World(tmp_path, released.extra)
    spec = world.pipelines / "irises" / "defs.yaml"
    spec.write_text(spec.read_text() + WATCHED)
    store = open_snapshots(world.settings.snapshots)
    flowers = Address("irises", "raw_snapshot", "flowers")
    bad = read_record(store, store.resolve(), flowers)
    assert bad is not None
    world.cli("data", "recall", bad.data_version[:10], *SAID)
    irises.write_flowers(world.sources, species_of_first="virginica")
    return world


def test_landing_takes_in_the_mended_data_and_asks_for_the_next_model(
    recalled: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    recalled.enter(monkeypatch)
    with dg.instance_for_test() as instance:
        watched = Watched(recalled.root, instance, name="irises")
        jobs: list[str] = []
        while "irises__refresh" not in jobs:
            (asked,) = watched.asks_for()
            jobs.append(str(asked.job_name))
            if asked.job_name != "irises__refresh":
                assert watched.execute(asked)
    assert jobs == ["irises__sources", "irises__features", "irises__refresh"]


def test_a_run_tells_what_it_would_make_of_the_mended_data(recalled: World) -> None:
    due = due_now(open_pipeline("irises", recalled.settings), Request("irises"))
    assert due[0].startswith("make  irises/raw_snapshot/raw_flowers: it is recalled")
    assert any(line.startswith("then  irises/trained_model") for line in due)


def test_a_model_in_canary_that_is_recalled_stays_there_and_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses(_: object) -> str:
        raise Recalled("irises/training_set is recalled")

    extra = SimpleNamespace(canary_candidate=refuses)
    monkeypatch.setattr(candidate_runs, "load_extra", lambda _: extra)
    spec = SimpleNamespace(drift=None, release=SimpleNamespace(canary="1 period"))
    pipeline: Any = SimpleNamespace(spec=spec)
    (_, drift), (place, said) = before_the_model(pipeline)
    assert (drift, place) == ("", CANARY)
    assert said == "the model in canary stays there: irises/training_set is recalled"
