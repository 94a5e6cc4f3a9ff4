"""Drift of a table that is read whole: new rows in slices, silent where nothing has changed."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ml_assets.cli.output import DONE, REFUSED
from ml_assets_tests.worlds.world import World

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(900)]  # three runs, two of them to a release
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)


def sell(file: Path, days: int, raised: float, *, timed: bool) -> None:
    """48 sales a day; from day 100 on their prices are raised."""
    draw = random.Random(3)
    lines = ["id,at,price,kind,sold" if timed else "id,price,kind,sold"]
    for number in range(days * 48):
        price = draw.gauss(10 + (raised if number >= 100 * 48 else 0), 2)
        sold = draw.random() < 1 / (1 + 2.7 ** ((10 - price) / 2))
        at = f"{BEGIN + number * timedelta(minutes=30):%Y-%m-%dT%H:%M:%SZ}," if timed else ""
        lines.append(f"{number},{at}{price:.6f},{draw.choice('abc')},{int(sold)}")
    file.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("cut", "newest", "code"),
    [("every: 1 week", "2024-04-29", REFUSED), ("rows: 300", "rows 5701-6000", DONE)],
)
def test_new_rows_are_held_to_the_release_in_slices(
    tmp_path: Path, cut: str, newest: str, code: int
) -> None:
    world, timed = World(tmp_path), cut.startswith("every")
    file = world.sources / "sales.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    sell(file, 72, 0, timed=timed)
    world.cli("new", "sales", "--from", str(file), "--label", "sold")
    spec = world.pipelines / "sales" / "defs.yaml"
    declared = spec.read_text()
    spec.write_text(f"{declared}  drift: {{}}\n")
    assert "how new rows are cut into periods" in world.cli("check", "sales", code=1)
    spec.write_text(f"{declared}  drift: {{{cut}}}\n")
    assert "skip  drift_report" in world.cli("run", "sales", "--verbose")
    sell(file, 100, 0, timed=timed)
    world.cli("run", "sales")
    assert "within its bounds" in world.cli("data", "drift", "sales")
    sell(file, 125, 4, timed=timed)
    said = world.cli("run", "sales", "--verbose", code=code)
    assert f"make  drift_report: {newest} came after the release" in said
    assert f"{newest}: drift in features" in said
    assert "[warn] drift_features: price" in said
