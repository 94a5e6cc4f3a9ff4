"""The account of a real pipeline: a training that was killed and resumed, a model that the gates
refused, one that was killed for good. Every second of every machine is in it once."""

import json
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from ml_assets.assets.trained_model.cost.jobs import jobs_of
from ml_assets.assets.trained_model.cost.split import node_time
from ml_assets.extras.cost.account import account
from ml_assets.extras.cost.bill import By
from ml_assets.extras.cost.command import document
from ml_assets.records.data_steps import data_steps
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.conftest import Cli
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

Cost = Callable[..., str]
PRICES = "node=36,storage=0.5,transfer=0.1"
"""A second of a machine costs a cent."""
SCHEDULED = irises.SPEC.replace(
    "  gates:", '  automation: {refresh: {cron: "0 6 * * 1"}}\n  gates:'
)


def spec(world: World, epochs: int) -> None:
    """Another training, whose model no gate lets pass."""
    strict = SCHEDULED.replace("at_least: 0.8", "at_least: 0.9999")
    text = strict.replace("epochs: 30", f"epochs: {epochs}")
    (world.pipelines / "irises" / "defs.yaml").write_text(text)


@dataclass(frozen=True)
class Lived:
    """A world, and its account by job: while a training lay killed, and after it was resumed."""

    world: World
    killed: dict
    resumed: dict


def told(world: World, by: By = "job") -> dict:
    place = open_pipeline("irises", world.settings)
    return document(account([place], world.settings, by, datetime.now(UTC)))


@pytest.fixture(scope="module")
def lived(released: World, tmp_path_factory: pytest.TempPathFactory) -> Lived:
    root = tmp_path_factory.mktemp("cost")
    shutil.copytree(released.root, root, dirs_exist_ok=True)
    world = World(root, {**released.extra, "ML_ASSETS_PRICES": PRICES})
    spec(world, 60)
    world.stopped_at("step 40 of", signal.SIGKILL, "run", "irises", "--verbose")
    killed = told(world)
    world.cli("run", "irises", code=3)
    return Lived(world, killed, told(world))


@pytest.fixture
def world(lived: Lived) -> World:
    return lived.world


@pytest.fixture
def cost(world: World, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Cost:
    """What `ml-assets models cost` prints."""
    world.enter(monkeypatch)

    def call(*arguments: str) -> str:
        return cli("models", "cost", *arguments).out

    return call


def work(line: dict) -> set[str]:
    """What of useful, failed and refused is in a line."""
    kinds = ("useful", "failed", "refused")
    return {kind for kind in kinds if line["parts"][kind]["node_seconds"] > 0}


def trainings(account: dict) -> dict[int, dict]:
    """By the number of their attempts: the released one has one."""
    own = [line for line in account["lines"] if "-train-" in line["name"]]
    return {line["attempts"]: line for line in own if work(line) != {"failed"}}


def test_the_parts_of_every_job_add_up_to_its_node_seconds_exactly(world: World) -> None:
    place = open_pipeline("irises", world.settings)
    jobs = jobs_of(place, world.settings.prices)
    assert {job.verb for job in jobs} == {"train", "score", "sanity"}
    for job in jobs:
        for use in job.uses:
            assert sum(use.split.values()) == node_time(use.usage)
            held = use.usage.held
            assert node_time(use.usage) / 1e6 == (held.ended - held.created).total_seconds()


def test_a_training_that_lies_killed_has_failed_and_what_is_resumed_counts_again(
    lived: Lived,
) -> None:
    by_work = [work(line) for line in lived.killed["lines"] if "-train-" in line["name"]]
    assert sorted(by_work, key=str) == [{"failed"}, {"useful"}]
    good, refused = (trainings(lived.resumed)[attempts] for attempts in (1, 2))
    assert (work(good), work(refused)) == ({"useful"}, {"refused"})
    assert good["parts"]["recomputed"]["node_seconds"] == 0
    assert refused["parts"]["recomputed"]["node_seconds"] > 0, "its second start, at least"
    assert [line["estimate"] is None for line in (good, refused)] == [True, False]


def test_data_steps_and_storage_are_on_the_bills_of_jobs_and_add_up_to_the_whole(
    lived: Lived,
) -> None:
    place = open_pipeline("irises", lived.world.settings)
    steps = data_steps(place.store, "irises", lived.world.settings.prices)
    made = [one.address for one in steps]
    assert {one.split("/")[1] for one in made} == {
        "raw_snapshot",
        "validated_table",
        "feature_set",
        "training_set",
    }
    assert all(one.took > 0 for one in steps)
    total, lines = lived.resumed["total"], lived.resumed["lines"]
    left = lived.resumed["no_job_yet"]
    shares = [one["data_steps"] for one in (*lines, *([left] if left else []))]
    assert sum(one["steps"] for one in shares) == total["data_steps"]["steps"] == len(made)
    took = sum(one.took for one in steps) / 1e6
    assert total["data_steps"]["node_seconds"] == took
    assert sum(one["node_seconds"] for one in shares) == pytest.approx(took)
    first = trainings(lived.resumed)[1]
    assert first["data_steps"]["steps"] == 4, "what was made before the first training"
    bytes_there = told(lived.world, "pipeline")["pipelines"][0]["storage"]["bytes"]
    assert float(total["storage_per_month"]) == pytest.approx(bytes_there / 2e9, abs=1e-6)


def test_what_was_written_down_outlives_the_folders_of_the_sessions(
    lived: Lived, tmp_path: Path
) -> None:
    shutil.copytree(lived.world.root, tmp_path, dirs_exist_ok=True)
    later = World(tmp_path, lived.world.extra)
    shutil.rmtree(Path(later.settings.objects) / "sessions")
    after = told(later)
    assert lived.resumed["total"]["jobs"] > 5
    lies = {"stored_bytes": 0, "storage_per_month": 0}
    assert [{**line, **lies} for line in after["lines"]] == [
        {**line, **lies} for line in lived.resumed["lines"]
    ], "a run that was killed wrote nothing down: the one after it did"


def test_what_had_a_price_keeps_it_and_what_had_none_is_told_in_the_present_one(
    lived: Lived,
) -> None:
    dearer = World(lived.world.root, {**lived.world.extra, "ML_ASSETS_PRICES": "node=72"})
    before, after = trainings(lived.resumed), trainings(told(dearer))
    assert after[2]["cost"] == before[2]["cost"]
    assert Decimal(after[1]["cost"]) == pytest.approx(
        2 * Decimal(before[1]["cost"]), abs=Decimal("0.000002")
    )


def test_the_year_of_the_schedule_is_its_ticks_times_the_mean_run(world: World) -> None:
    place = open_pipeline("irises", world.settings)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    found = document(account([place], world.settings, "pipeline", now))
    (outlook,) = found["pipelines"]
    year = outlook["year"]
    assert (year["cron"], year["ticks"], year["runs"]) == ("0 6 * * 1", 52, 2)
    assert Decimal(year["cost"]) == pytest.approx(
        52 * Decimal(year["cost_per_run"]), abs=Decimal("0.0001")
    )
    assert Decimal(year["cost_per_run"]) > 0
    storage = outlook["storage"]
    assert {"sessions", "models", "shards", "tables"} <= storage["by_kind"].keys()
    assert sum(storage["by_kind"].values()) == storage["bytes"] > 10_000
    assert float(storage["cost_per_month"]) == pytest.approx(storage["bytes"] / 2e9, abs=1e-6)


def test_a_person_reads_a_table_with_a_line_of_totals(world: World, cost: Cost) -> None:
    said = cost("--by", "owner")
    head, *rows = said.splitlines()
    assert head.split()[:4] == ["owner", "jobs", "node-hours", "GPU-hours"]
    assert {rows[0].split()[0], rows[1].split()[0]} == {"team:botany", "team:logistics"}
    assert rows[2].split()[0] == "total"
    assert re.search(r"irises: its schedule \(0 6 \* \* 1\) is due 5[23] times in a year", said)
    assert "GB lie there" in said
    months = [line["name"] for line in told(world, "month")["lines"]]
    assert months == sorted(months) and months[-1] <= f"{datetime.now(UTC):%Y-%m}"


def test_without_a_price_hours_are_told_and_what_is_missing(
    cost: Cost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ML_ASSETS_PRICES")
    assert "have no price: ML_ASSETS_PRICES is not set" in cost("irises")
    monkeypatch.setenv("ML_ASSETS_PRICES", "spot=1.10")
    assert "have no price: ML_ASSETS_PRICES has no price for them" in cost("irises")


def test_a_program_reads_one_document(world: World) -> None:
    found = json.loads(world.cli("models", "cost", "irises", "--json"))
    assert (found["schema"], found["by"], found["left_out"]) == (1, "pipeline", None)
    assert [line["name"] for line in found["lines"]] == ["irises"]


def test_the_page_of_the_model_has_its_hours_and_its_cost(world: World) -> None:
    shown = world.page("irises", "trained_model")
    assert shown["cost"] == pytest.approx(shown["node_hours"] * 36, abs=1e-5)
    assert shown["gpu_hours"] == 0
    assert 0 < shown["useful_share"] < 1
    assert "What the machines were used for" in shown["machines"]
