"""Every published table has its card: in the store, in the UI, as a page and over HTTP."""

import http.client
import weakref
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from ml_assets.actions.card_page import page_of_card, served_card
from ml_assets.actions.read_table import read_table
from ml_assets.actions.report_server import serving_reports
from ml_assets.errors import StorageError
from ml_assets.graph.data_card import label_columns
from ml_assets.settings import read_settings
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline, open_pipeline
from ml_assets.store.table_statistics import STATISTICS_FILE, TableStatistics
from ml_assets.store.table_survey import survey
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.world import World, free_ports

WEEK = "2024-01-15"


def place(world: World, name: str = "deliveries") -> Pipeline:
    return open_pipeline(name, world.settings)


def test_the_command_writes_a_page_and_says_where(released: World) -> None:
    page = Path(
        released.streams("data", "card", "deliveries", "orders", "--partition", WEEK).stdout.strip()
    )
    text = page.read_text()
    assert f"Data card · {WEEK}" in text
    assert f"<tr><th>rows</th><td>{deliveries.ORDERS}</td></tr>" in text
    assert page.name == f"card-orders-{WEEK}.html"


def test_all_partitions_add_up_to_what_all_rows_say(released: World) -> None:
    at = place(released)
    address, key = Address("deliveries", "feature_set"), at.spec.features.key
    commit = at.store.resolve()
    parts = [
        TableStatistics.model_validate_json(at.store.read_bytes(commit, entry.path))
        for entry in at.store.list(commit, f"tables/{address.key}/")
        if entry.path.endswith(STATISTICS_FILE)
    ]
    rows = read_table(address.key, settings=released.settings).collect()
    assert sum(part.rows for part in parts) == len(rows)
    text = page_of_card(at, "feature_set", None)
    whole = survey(rows, key, label_columns(at.spec))
    assert whole.labels is not None
    assert f"<tr><th>rows</th><td>{len(rows):,}</td></tr>" in text
    assert f"<tr><th>rows with a label</th><td>{whole.labels.labelled:,}</td></tr>" in text
    assert "Label rate by partition" in text
    assert "Label rate by depot" in text
    assert f"{len(parts)} partitions" in text


def test_few_partitions_are_in_memory_while_all_are_added_up(
    released: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = TableStatistics.model_validate_json
    parts = list[weakref.ref[TableStatistics]]()
    alive = list[int]()

    def remembered(data: bytes) -> TableStatistics:
        part = read(data)
        parts.append(weakref.ref(part))
        alive.append(sum(one() is not None for one in parts))
        return part

    monkeypatch.setattr(TableStatistics, "model_validate_json", remembered)
    page_of_card(place(released), "feature_set", None)
    assert len(parts) > 8
    assert max(alive) <= 3


def test_the_training_set_has_its_labels_by_split(released: World) -> None:
    text = page_of_card(place(released), "training_set", None)
    assert "Label rate by split" in text
    assert "Share of versicolor by split" in page_of_card(
        place(released, "irises"), "training_set", None
    )


def test_the_asset_page_has_the_pictures_and_a_link_for_each_partition(released: World) -> None:
    for stage, end in (("feature_set", "2024-03-18"), ("training_set", "all")):
        shown = released.page("deliveries", stage)
        assert "Distributions" in shown["data_card"]
        assert shown["card"] == f"{released.settings.reports_url}/deliveries/card/{stage}/{end}"


def test_the_link_is_served_and_nothing_but_tables(
    released: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released.enter(monkeypatch)
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with serving_reports(tmp_path, url, card=partial(served_card, read_settings())):
        assert ask(port, f"/deliveries/card/orders/{WEEK}")[0] == 200
        assert "Data card" in ask(port, "/deliveries/card/training_set/all")[1]
        for path in ("orders/1999-01-01", "nothing/all", "orders/..%2f..", "orders/"):
            assert ask(port, f"/deliveries/card/{path}")[0] == 404
        assert ask(port, "/nobody/card/orders/all")[0] == 404
        assert ask(port, "/deliveries/card/orders/all", host="evil.example")[0] == 403


def ask(port: int, path: str, host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_a_wrong_table_or_partition_says_what_there_is(released: World) -> None:
    with pytest.raises(StorageError, match=r"no table 'order'. Did you mean 'orders'\?"):
        page_of_card(place(released), "order", None)
    with pytest.raises(StorageError, match=r"no partition '\.\./x'; it has 12, 2024-01-01 to"):
        page_of_card(place(released), "orders", "../x")


def test_the_card_counts_what_is_published_and_not_what_is_in_quarantine(released: World) -> None:
    rows = read_table("deliveries/validated_table/orders", settings=released.settings)
    text = page_of_card(place(released), "orders", None)
    count = rows.select(pl.len()).collect().item()
    assert f"<tr><th>rows</th><td>{count:,}</td></tr>" in text
