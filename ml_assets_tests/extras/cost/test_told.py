"""What `ml-assets models cost` and the page of the runs tell of records alone: hours, and
money where a price is known."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ml_assets.actions.experiments import page
from ml_assets.records.experiments import Begun, Words, add, begin
from ml_assets.records.run_usage import RunUsage, Whose
from ml_assets.settings import Prices, prices_of, read_settings
from ml_assets.spec.base import canonical_json
from ml_assets.spec.usage import AttemptUsage, Held, Mark
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.conftest import Cli
from ml_assets_tests.worlds import irises

Tell = Callable[..., str]
PRICES = prices_of([("node", "2"), ("transfer", "0.10")])
SCHEDULED = irises.SPEC.replace(
    "  gates:", '  automation: {refresh: {cron: "0 6 * * 1"}}\n  gates:'
)
DAY = timedelta(days=1)
GB = 10**9


@pytest.fixture
def tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Tell:
    """Four runs, an hour of a machine each, 30 days apart; what the command then says."""
    folder = tmp_path / "pipelines" / "irises"
    folder.mkdir(parents=True)
    (folder / "defs.yaml").write_text(SCHEDULED)
    (folder / "features.py").write_text(irises.FEATURES)
    for name in ("ML_ASSETS_PRICES", "ML_ASSETS_OBJECTS", "ML_ASSETS_SNAPSHOTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ML_ASSETS_PIPELINES", str(folder.parent))

    def call(prices: Prices, *arguments: str) -> str:
        for number in range(4):
            ran(number, datetime.now(UTC) - (91 - 30 * number) * DAY, prices)
        return cli("models", "cost", "irises", *arguments).out

    return call


def ran(number: int, began: datetime, prices: Prices) -> None:
    """A run that trained, and wrote down what its one attempt used."""
    place, run = open_pipeline("irises", read_settings()), f"run-{number}"
    config = place.spec.model_dump(mode="json")
    begun = Begun(
        pipeline="irises", run=run, trigger="schedule", words=Words(), config=config, time=began
    )
    begin(place.store, begun)
    held = Held(
        nodes=1,
        price_class="on-demand",
        created=began,
        scheduled=began,
        started=began,
        ended=began + timedelta(hours=1),
        staged_bytes=GB,
    )
    usage = AttemptUsage(
        pipeline="irises",
        session=f"irises-train-{number:020d}",
        attempt=1,
        verb="train",
        held=held,
        end="done",
        steps=100,
        marks=(Mark(after=0, step=1), Mark(after=3_000_000, step=100, waited=0.5)),
        checkpoint_bytes=3 * GB,
        checkpoint_bytes_sent=2 * GB,
    )
    whose = Whose(run=run, owner="team:botany", trigger="schedule", prices=prices.said())
    file = canonical_json(RunUsage(whose=whose, usage=usage))
    add(place.store, "irises", run, {f"usage/{usage.session}-a1.json": file})


def test_where_no_price_was_ever_known_hours_alone_are_told(tell: Tell) -> None:
    said = tell(Prices())
    assert re.search(r"each 1 node-hours \(mean of 4\): 5[23] node-hours a year$", said, re.M)
    assert re.search(r"the next training takes about \S+ node-hours$", said, re.M)
    assert re.search(r"GB lie there$", said, re.M)
    assert "4 node-hours have no price: ML_ASSETS_PRICES is not set" in said
    assert not re.search(r"irises: .*–", said)


def test_every_column_is_explained_by_the_help_that_the_table_names(tell: Tell, cli: Cli) -> None:
    said = tell(Prices())
    named, *columns = re.split("  +", said.splitlines()[0])
    assert named == "pipeline" and columns[-1] == "cost"
    assert "what the columns are: ml-assets models cost --help" in said
    told = cli("models", "cost", "--help").out
    assert re.findall(r"^  (\S+(?: \S+)*)  +\S.*$", told, re.M)[: len(columns)] == columns


def test_with_prices_money_comes_first_and_checkpoints_are_transfer(tell: Tell) -> None:
    said = tell(PRICES)
    assert re.search(r"each 2\.00 \(1 node-hours\) \(mean of 4\): 10[46]\.00 \(5[23] node-", said)
    *_, cost = next(line for line in said.splitlines() if line.startswith("total")).split()
    assert cost == "9.20", "four hours at 2, and 3 GB of each at 0.10"


def test_the_page_of_the_runs_draws_the_months(tell: Tell) -> None:
    tell(PRICES)
    html = page(open_pipeline("irises", read_settings()))
    section = html[html.index("<h2>What the machines were used for</h2>") :]
    drawn = re.findall(r'aria-label="([^"]*by month)"', section)
    assert drawn == ["Machine time by month", "Cost by month"]
    for tone in re.findall(r'<path class="bar (\w+)"', section):
        assert f"svg .{tone}{{" in html, "without its rule a column is black"
    useful, stalled = (
        float(share) for share in re.findall(r"([\d.]+)% (?:useful|stalled)", section)[:2]
    )
    assert useful + stalled == pytest.approx(100, abs=0.2)
    assert stalled == pytest.approx(100 * 0.5 * 3000 / 3600, abs=0.1)


def test_without_a_price_the_page_draws_hours_alone(tell: Tell) -> None:
    tell(Prices())
    html = page(open_pipeline("irises", read_settings()))
    assert "Machine time by month" in html and "Cost by month" not in html
