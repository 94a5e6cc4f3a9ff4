"""The nodes of the plan: which assets can be made of what has landed."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from ml_assets.assets.raw_snapshot.receipt import receipt_version
from ml_assets.assets.raw_snapshot.sources import Sources
from ml_assets.automation.planner.graph_nodes import data_nodes, plan_data
from ml_assets.automation.planner.landed import Landed, landed
from ml_assets.automation.planner.plan import RECALLED, Item, Node, Plan
from ml_assets.errors import StoreAway
from ml_assets.extras.online.entry import with_lost_service
from ml_assets.extras.online.sqlite import SqliteOnline
from ml_assets.extras.online.store import Served
from ml_assets.settings import DEMO_PIPELINES, read_settings
from ml_assets.spec import partitions
from ml_assets.spec.partitions import PartitionsSpec, windows
from ml_assets.spec.records import InputVersion, StageRecord
from ml_assets.store.layout import Address, run_key
from ml_assets_tests.automation.conftest import WEEKS
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.opened import pipeline_of


@pytest.mark.parametrize(
    ("weeks", "features", "online"),
    [(1, 0, 0), (4, 0, 0), (5, 1, 1), (9, 5, 1)],
)
def test_nothing_is_served_before_the_first_look_back_is_whole(
    weeks: int, features: int, online: int
) -> None:
    """Features of the flights look back at four weeks; they are served as soon as there are any."""
    folder = DEMO_PIPELINES / "flight_delays"
    graph = pipeline_of(folder)
    known = windows(graph.spec.partitions, datetime(2014, 1, 1, tzinfo=UTC))
    nodes = data_nodes(
        graph,
        Landed(known[:weeks]),
        lambda name, span: receipt_version(name, span.key if span else None, {}),
    )
    stages = Counter(node.address.stage for node in nodes)
    assert (stages["feature_set"], stages["online_features"]) == (features, online)
    served = [node for node in nodes if node.address.stage == "online_features"]
    assert all(node.inputs for node in served)


def test_the_calendar_is_laid_out_as_often_for_few_partitions_as_for_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = pipeline_of(DEMO_PIPELINES / "flight_delays")
    known = windows(graph.spec.partitions, datetime(2014, 1, 1, tzinfo=UTC))
    edges, laid_out = partitions._edges, Counter[int]()

    def counted(spec: PartitionsSpec, zone: ZoneInfo) -> Iterator[datetime]:
        laid_out[weeks] += 1
        return edges(spec, zone)

    monkeypatch.setattr(partitions, "_edges", counted)
    for weeks in (8, 40):
        partitions._windows.cache_clear()  # as a process that begins
        data_nodes(graph, Landed(known[:weeks]), lambda name, _: receipt_version(name, None, {}))
    assert laid_out[8] == laid_out[40] > 0


def test_what_was_read_stands_for_what_a_source_has_no_more_but_not_where_it_was_recalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Week 1 is delivered again, of week 2 the orders are gone, and those of week 3, recalled."""
    monkeypatch.setattr(
        "ml_assets.assets.raw_snapshot.readers.arrived_files.QUIET", timedelta(days=1)
    )  # of a slow machine
    sources = tmp_path / "sources"
    sources.mkdir()
    deliveries.plant(tmp_path, sources, weeks=4)
    orders = [sources / "orders" / f"{week}.csv" for week in WEEKS]
    orders[0].write_text(orders[0].read_text().rstrip())  # its last line has no end yet
    orders[1].unlink()
    orders[2].unlink()
    graph = pipeline_of(tmp_path / "deliveries")
    records = {_raw(week): _record(_raw(week)) for week in WEEKS[:3]}
    bad = records[_raw(WEEKS[2])]
    records[_raw(WEEKS[2])] = bad.model_copy(update={"attributes": {RECALLED: "9db76de6ad4f"}})

    found = landed(graph, Sources(read_settings({"ML_ASSETS_SOURCES": str(sources)})), records)
    assert found.keys == (WEEKS[0], WEEKS[1], WEEKS[3])
    assert found.as_read == (WEEKS[0], WEEKS[1])
    assert "2024-01-15 is skipped: recalled" in found.waiting[-1]

    planned, _ = plan_data(graph, found, records)
    features = [i.node.address.partition for i in planned.items if "feature" in str(i.node.address)]
    assert features == [WEEKS[1]]  # which looks back at week 1; week 4 would look at week 3
    due = {item.node.address for item in planned.due}
    assert _raw(WEEKS[3]) in due
    assert not due & records.keys(), "what cannot be read again is not due, whatever its code"


def test_what_was_served_is_due_for_each_other_thing_that_is_served_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ML_ASSETS_ONLINE", str(tmp_path / "online.db"))
    folder = DEMO_PIPELINES / "flight_delays"
    address = Address("flight_delays", "online_features")
    records = {address: _record(address)}
    planned = Plan((Item(Node(address, "code"), False, ""),))

    def salt() -> str | None:
        (item,) = with_lost_service(pipeline_of(folder), planned, records).items
        return item.node.salt if item.due else None

    def serve(version: str) -> None:
        served = Served("flight_delays", version, ("origin",), {"origin": "String"}, 0)
        SqliteOnline(tmp_path / "online.db").serve(served, [])

    assert salt() == "nothing"
    serve("another")
    assert salt() == "another"
    serve(records[address].data_version)
    assert salt() is None
    monkeypatch.setenv("ML_ASSETS_ONLINE", str(tmp_path))  # a folder answers nothing
    with pytest.raises(StoreAway):
        salt()


def _raw(week: str) -> Address:
    return Address("deliveries", "raw_snapshot", "orders", week)


def _record(address: Address) -> StageRecord:
    """A record that other code made than the present, from another delivery."""
    inputs = (InputVersion(key="source:orders", partition=None, version="a" * 64, commit=None),)
    return StageRecord(
        key=address.key,
        partition=address.partition,
        run_key=run_key(address, "older", inputs),
        code_version="older",
        data_version="b" * 64,
        rows=1,
        inputs=inputs,
        run="",
        time=datetime(2024, 2, 1, tzinfo=UTC),
    )
