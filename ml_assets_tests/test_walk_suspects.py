"""Wrong labels come to the top: 1% of a world's labels are flipped, and the model finds them."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.world import World

FLIPPED, NOISE = 0.01, 0.02
LOOKED_AT = 50


def plant_flips(sources: Path) -> set[int]:
    """Orders are late where the load is high, but for noise; then some labels are flipped."""
    orders = pl.read_csv(sources / "orders" / "*.csv")
    loads = dict(orders.select("order", "load").iter_rows())
    draw = random.Random(3)
    flipped = set(draw.sample(sorted(loads), round(len(loads) * FLIPPED)))
    for file in sorted((sources / "arrivals").glob("*.jsonl")):
        events = [json.loads(line) for line in file.read_text().splitlines()]
        for event in events:
            late = (loads[event["order"]] > 60) != (draw.random() < NOISE)
            event["late"] = late != (event["order"] in flipped)
        file.write_text("\n".join(json.dumps(event) for event in events) + "\n")
    return flipped


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, set[int]]]:
    world = World(tmp_path_factory.mktemp("suspects")).plant(deliveries)
    flipped = plant_flips(world.sources)
    world.cli("run", "deliveries")
    yield world, flipped


def test_flipped_labels_are_three_times_as_frequent_among_the_first_as_among_all(
    planted: tuple[World, set[int]],
) -> None:
    world, flipped = planted
    file = world.root / "suspects.parquet"
    world.cli("models", "suspects", "deliveries", "--output", str(file))
    found = pl.read_parquet(file)
    assert found.columns == ["order", "split", "late", "prediction", "loss"]
    assert found["loss"].is_sorted(descending=True)
    assert set(found["split"]) == {"validation", "holdout"}
    hits = sum(order in flipped for order in found["order"].head(LOOKED_AT))
    assert hits / LOOKED_AT >= 3 * FLIPPED


def test_suspects_are_in_the_report_with_key_label_prediction_and_loss(
    planted: tuple[World, set[int]],
) -> None:
    world, _ = planted
    first = json.loads(
        world.streams("models", "suspects", "deliveries", "--format", "jsonl").stdout.split("\n")[0]
    )
    page = Path(world.streams("models", "report", "deliveries").stdout.strip()).read_text()
    section = page.split("<h2>Label suspects</h2>")[1].split("</section>")[0]
    assert f"<th>{first['order']}</th>" in section
    assert f"<td>{first['loss']:.4g}</td>" in section
