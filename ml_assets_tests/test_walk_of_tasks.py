"""The walk of a regression and of a ranking: from the spec to a release, and to the next model."""

import re
from io import StringIO
from pathlib import Path

import polars as pl
import pytest

from ml_assets_tests.worlds import clicks, rents
from ml_assets_tests.worlds.world import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("tasks")).plant(clicks, rents)


@pytest.fixture(scope="module")
def first(world: World) -> str:
    """The first run of the ranking, for one epoch: two processes, FSDP."""
    world.cli("run", "clicks", "--epochs", "1")
    return world.status("clicks")["release"]["version"]


@pytest.fixture(scope="module")
def ranked(world: World, first: str) -> str:
    """The night after, for the three epochs of the spec."""
    return world.cli("run", "clicks")


@pytest.fixture(scope="module")
def estimated(world: World) -> str:
    """The first run of the regression: one process."""
    return world.cli("run", "rents")


def reseed(world: World) -> None:
    """Another seed: the next model is another one, and as good."""
    world.edit("rents", ("  training:\n", "  training:\n    seed: 5\n"))


def test_a_nightly_ranking_that_is_better_by_half_a_percent_is_released(
    world: World, first: str, ranked: str
) -> None:
    release = world.status("clicks")["release"]
    assert release["decision"] == "passed"
    assert set(release["metrics"]) == {"ndcg"}
    assert 0.8 < release["metrics"]["ndcg"] < 0.98
    assert release["version"] != first
    assert f"ndcg minus that of champion {first[:12]} is" in ranked
    assert "above +0.50%: the new model is better than the champion by 0.5%" in ranked


def test_a_regression_ends_in_a_release(world: World, estimated: str) -> None:
    release = world.status("rents")["release"]
    assert release["decision"] == "passed"
    metrics = release["metrics"]
    assert set(metrics) == {"rmse", "mae", "r2"}
    assert rents.NOISE * 0.9 < metrics["rmse"] < rents.NOISE * 1.2, "in euros: the planted noise"
    assert "[pass] champion: no champion yet" in estimated


def test_a_nightly_ranking_that_is_no_better_is_refused(world: World, ranked: str) -> None:
    champion = world.status("clicks")["release"]["version"]
    said = world.cli("run", "clicks", "--epochs", "1", code=3)
    assert f"champion: ndcg minus that of champion {champion[:12]} is" in said
    conclusion = (
        "could not show that the new model is better than the champion by 0.5%",
        "the new model is not better than the champion by 0.5%",
        "the new model is worse than the champion",
    )
    assert any(one in said for one in conclusion)
    assert "The model was refused by 1 gate:" in said
    assert "[fail] champion:" in said
    status = world.status("clicks")
    assert status["release"]["version"] == champion
    assert [g["name"] for g in status["refusal"]["gates"] if not g["passed"]] == ["champion"]
    told = world.cli("status", "clicks").splitlines()
    refused = status["refusal"]["version"][:12]
    line = f"clicks: the newest model, {refused}, is refused; the release below stays"
    assert told[told.index(line) + 1].strip().startswith("[")
    assert any(said.startswith("  [fail] champion:") for said in told)
    assert f"clicks: production is model {champion[:12]}" in told


def test_a_regression_that_is_no_worse_than_the_champion_follows_it(
    world: World, estimated: str
) -> None:
    champion = world.status("rents")["release"]["version"]
    reseed(world)
    said = world.cli("run", "rents")
    assert f"champion: rmse minus that of champion {champion[:12]} is" in said
    assert "below +5.00%: the new model is within 5% of the champion" in said
    assert world.status("rents")["release"]["version"] != champion


@pytest.mark.parametrize(
    ("pipeline", "shown", "not_shown"),
    [
        ("clicks", ["NDCG by day", "Gain by position"], ["ROC", "Residuals"]),
        ("rents", ["Predicted against observed", "Residuals"], ["ROC", "NDCG"]),
    ],
)
def test_the_report_shows_what_makes_sense_of_the_task(
    world: World,
    ranked: str,
    estimated: str,
    pipeline: str,
    shown: list[str],
    not_shown: list[str],
) -> None:
    page = Path(world.cli("models", "report", pipeline).strip()).read_text()
    assert "<svg" in page
    assert all(heading in page for heading in shown)
    assert not any(heading in page for heading in not_shown)


def test_the_first_rows_are_shown_with_the_rent_in_euros(world: World, estimated: str) -> None:
    page = Path(world.cli("models", "report", "rents").strip()).read_text()
    (row,) = re.findall("<tr><th>label</th>(.*)</tr>", page)
    assert all(float(rent) > 300 for rent in re.findall("<td>([^<]*)</td>", row)), row


def test_the_release_of_a_ranking_predicts_a_score_for_each_product(
    world: World, ranked: str
) -> None:
    lines = (world.sources / "shown" / "2024-03-30.csv").read_text().splitlines()
    without_grade = [line.rsplit(",", 1)[0] for line in lines[: 1 + 2 * clicks.PRODUCTS]]
    file = world.root / "search.csv"
    file.write_text("\n".join(without_grade) + "\n")
    found = pl.read_csv(StringIO(world.streams("predict", "clicks", str(file)).stdout))
    assert found.columns == ["item", "score"]
    assert found["score"].n_unique() > clicks.PRODUCTS
    truth = pl.read_csv(world.sources / "shown" / "2024-03-30.csv")
    both = found.join(truth, on="item").group_by("grade").agg(pl.col("score").mean())
    assert both.sort("grade")["score"].is_sorted(), "the better match has the higher score"


def test_the_release_of_a_regression_predicts_in_the_unit_of_its_label(
    world: World, estimated: str
) -> None:
    rows = pl.read_csv(world.sources / "flats.csv").head(50)
    file = world.root / "flats.csv"
    rows.drop("rent").write_csv(file)
    found = pl.read_csv(StringIO(world.streams("predict", "rents", str(file)).stdout))
    error = (found["prediction"] - rows["rent"]).abs().mean()
    assert isinstance(error, float) and error < 2 * rents.NOISE
