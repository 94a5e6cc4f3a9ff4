"""A stream is read by its offsets: each event once, however often it is delivered, and no gap."""

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ml_assets.assets.raw_snapshot.readers.json_lines_format import Batch, consume
from ml_assets.assets.raw_snapshot.readers.read_source import read_source, receipt_of
from ml_assets.errors import SourceError
from ml_assets_tests.assets.raw_snapshot.delivering import (
    FIRST,
    deliver,
    files,
    looked,
    no_sql,
    refusal,
    rows,
    stream,
)

EVENT = {"offset": "int64", "order": "int64", "at": "datetime"}
FOLDER = "arrivals/2024-01-01"


def events(*offsets: int, order: int = 100) -> str:
    """Lines of a batch; the order of an event is its offset and ``order``."""
    at = "2024-01-02T10:00:00Z"
    lines = [{"offset": o, "order": order + o, "at": at} for o in offsets]
    return "".join(json.dumps(line) + "\n" for line in lines)


def orders(root: Path) -> list[int]:
    return [row[0] for row in rows(root, stream())]


def test_batches_are_one_stream_in_whatever_order_they_came(tmp_path: Path):
    deliver(
        tmp_path,
        {
            f"{FOLDER}/z.jsonl": events(0, 1),
            f"{FOLDER}/a.jsonl": events(4, 2, 3),
            f"{FOLDER}/.b.jsonl": events(5),
        },
    )
    assert orders(tmp_path) == [100, 101, 102, 103, 104]
    assert looked(tmp_path, stream()).keys == ("2024-01-01",)


def test_a_batch_that_is_delivered_again_changes_nothing_but_the_receipt(tmp_path: Path):
    def reading() -> tuple[pl.DataFrame, object]:
        found = read_source("orders", stream(), tmp_path, no_sql, FIRST)
        assert found.receipt == receipt_of("orders", stream(), tmp_path, no_sql, FIRST)
        return found.frame, found.receipt

    deliver(tmp_path, {f"{FOLDER}/0.jsonl": events(0, 1), f"{FOLDER}/2.jsonl": events(2)})
    frame, receipt = reading()
    deliver(tmp_path, {f"{FOLDER}/0-again.jsonl": events(0, 1), f"{FOLDER}/1.jsonl": events(1, 2)})
    again, another = reading()
    assert again.equals(frame)
    assert receipt != another


@pytest.mark.parametrize("cut", [(4,), (1, 4), (0, 2, 2, 4), (3, 4)])
def test_events_may_be_cut_into_batches_at_any_place(tmp_path: Path, cut: Sequence[int]):
    """Only the first event has the key ``at``; a batch may have no event at all."""
    lines = events(0, 1, 2, 3).splitlines(keepends=True)
    lines[1:] = (line.replace(', "at": "2024-01-02T10:00:00Z"', "") for line in lines[1:])
    for first, last in zip((0, *cut), cut, strict=False):
        deliver(tmp_path, {f"{FOLDER}/{first}-{last}.jsonl": "".join(lines[first:last])})
    assert orders(tmp_path) == [100, 101, 102, 103]
    if len(cut) > 1:
        source = files(
            path="arrivals/{partition}/*.jsonl", format="jsonl", columns=EVENT, key=["order"]
        )
        with pytest.raises(SourceError, match=r"does not have the columns|is empty"):
            rows(tmp_path, source)  # files of rows are whole, each by itself


def test_a_key_that_no_batch_has_is_missed_and_batches_without_events_are_refused(tmp_path: Path):
    lines = '{"offset": 0, "order": 1}\n'
    deliver(tmp_path, {f"{FOLDER}/0.jsonl": lines, f"{FOLDER}/1.jsonl": ""})
    said = refusal(tmp_path, stream())
    assert "arrivals/2024-01-01/*.jsonl does not have the columns" in said
    assert "'at' is declared but not there" in said
    deliver(tmp_path, {f"{FOLDER}/0.jsonl": ""})
    assert "0.jsonl is empty (0 bytes)" in refusal(tmp_path, stream())


def test_an_overlap_costs_no_more_the_longer_the_stream_is(monkeypatch: pytest.MonkeyPatch):
    """Each batch begins with the last event of the one before: only that one is looked at."""
    joined: list[int] = []
    real = pl.concat

    def concat(frames: list[pl.DataFrame]) -> pl.DataFrame:
        joined.append(len(frames))
        return real(frames)

    monkeypatch.setattr(pl, "concat", concat)
    batches = [batch(max(0, 2 * n - 1), 2 * n + 2) for n in range(100)]
    assert consume(batches, "offset", "orders").height == 200
    assert sum(joined) < 3 * len(batches)


def test_a_late_event_is_appended_and_is_a_new_version(tmp_path: Path):
    deliver(tmp_path, {f"{FOLDER}/0.jsonl": events(0, 1)})
    before = receipt_of("orders", stream(), tmp_path, no_sql, FIRST)
    deliver(tmp_path, {f"{FOLDER}/2.jsonl": events(2)})
    assert receipt_of("orders", stream(), tmp_path, no_sql, FIRST) != before
    assert orders(tmp_path) == [100, 101, 102]


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        ([events(0), events(2)], "offset 1 of the stream are missing before"),
        ([events(3, 4)], "offsets 0 to 2 of the stream are missing"),
        ([events(0, 1, 5)], "offsets 2 to 4 of the stream are missing"),
        ([events(0), events(0, order=7)], "repeats offset 0 with other content"),
        ([events(0) + events(0, order=7)], "offset 0 is there twice with different content"),
        ([events(-1, 0)], "no offset of 0 or more"),
        (['{"order": 1, "at": null, "offset": null}\n'], "no offset of 0 or more"),
        (['{"order": 1, "at": null}\n'], "'offset' is declared but not there"),
        (['{"order": 1, "at": null, "offset": 0.5}\n'], "«0.5» is not int64"),
    ],
)
def test_a_stream_with_a_gap_or_a_changed_event_is_refused(
    tmp_path: Path, batches: Sequence[str], said: str
):
    deliver(tmp_path, {f"{FOLDER}/{n}.jsonl": batch for n, batch in enumerate(batches)})
    assert said in refusal(tmp_path, stream())


def batch(first: int, last: int) -> Batch:
    numbers = list(range(first, last))
    frame = pl.DataFrame({"offset": numbers, "x": [n * n for n in numbers]})
    return Batch(frame, f"{first} to {last}")


@given(st.integers(1, 40), st.data())
def test_an_event_that_changed_is_refused_wherever_its_batch_stands(
    length: int, data: st.DataObject
):
    batches = [batch(n, n + 1) for n in range(length)]
    number = data.draw(st.integers(0, length - 1))
    changed = Batch(pl.DataFrame({"offset": [number], "x": [-1]}), "changed")
    delivered = data.draw(st.permutations([*batches, changed]))
    with pytest.raises(SourceError, match=f"repeats offset {number} with other content"):
        consume(delivered, "offset", "orders")


@given(st.data())
def test_any_delivery_at_least_once_reads_as_the_stream_itself(data: st.DataObject):
    length = data.draw(st.integers(1, 30))
    ends = sorted({*data.draw(st.lists(st.integers(1, length), max_size=5)), length})
    begins = [0, *ends[:-1]]
    once = [batch(first, last) for first, last in zip(begins, ends, strict=True)]
    again = [
        batch(min(pair), max(pair))
        for pair in data.draw(
            st.lists(st.tuples(st.integers(0, length), st.integers(0, length)), max_size=4)
        )
        if pair[0] != pair[1]
    ]
    delivered = data.draw(st.permutations([*once, *again]))
    found = consume(delivered, "offset", "orders")
    assert found["x"].to_list() == [n * n for n in range(length)]


@given(st.integers(2, 20), st.data())
def test_any_event_that_was_lost_is_missed(length: int, data: st.DataObject):
    lost = data.draw(st.integers(0, length - 2))
    kept = [batch(n, n + 1) for n in range(length) if n != lost]
    with pytest.raises(SourceError, match=f"offset {lost} of the stream"):
        consume(data.draw(st.permutations(kept)), "offset", "orders")
