"""A failure of a partition is known until the partition is made, whoever failed beside it."""

from pathlib import Path

import pytest

from ml_assets.records.data_failures import (
    data_failure,
    failed_partitions,
    forget_failures,
    note_failures,
)
from ml_assets.store.embedded.store import EmbeddedStore
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline
from ml_assets_tests.worlds.opened import pipeline_of

TABLE = Address("flight_delays", "validated_table", "flights")
FIRST, SECOND = "2024-01-01", "2024-01-02"


@pytest.fixture
def flights(tmp_path: Path) -> Pipeline:
    return pipeline_of(store=EmbeddedStore(tmp_path))


def test_two_runs_that_fail_side_by_side_are_both_known(flights: Pipeline) -> None:
    one, other = flights.now(), flights.now()
    note_failures(one, TABLE.at(FIRST), "run-1", {FIRST: "bad"})
    note_failures(other, TABLE.at(SECOND), "run-2", {SECOND: "bad"})
    assert failed_partitions(flights.now()) == {TABLE.key: [FIRST, SECOND]}


def test_the_newest_failure_of_a_partition_is_the_one_that_is_known(flights: Pipeline) -> None:
    one, other = flights.now(), flights.now()
    note_failures(one, TABLE, "run-1", {FIRST: "bad"})
    note_failures(other, TABLE, "run-2", {FIRST: "worse", SECOND: "bad"})
    assert failed_partitions(flights.now()) == {TABLE.key: [FIRST, SECOND]}


def test_the_stages_that_are_made_are_forgotten_and_no_other(flights: Pipeline) -> None:
    features = Address("flight_delays", "feature_set")
    note_failures(flights.now(), TABLE, "run-1", {FIRST: "bad"})
    note_failures(flights.now(), features, "run-2", {FIRST: "bad"})
    forget_failures(flights.store, flights.name, {"feature_set", "derived_table"})
    assert failed_partitions(flights.now()) == {TABLE.key: [FIRST]}
    forget_failures(flights.store, flights.name, {"validated_table"})
    assert failed_partitions(flights.now()) == {}


def test_people_here_read_the_whole_sentence_and_its_items_on_lines_of_their_own(
    flights: Pipeline,
) -> None:
    why = "other columns:\n  - column 'a' is gone; «humid» is close: was it renamed?\x1b\nforged"
    note_failures(flights.now(), TABLE, "run-1", {FIRST: why})
    first, item, last, log = (data_failure(flights.now()) or "").splitlines()
    assert first.endswith("other columns:")
    assert item == "    - column 'a' is gone; «humid» is close: was it renamed?\\x1b"
    assert last == "    forged", "no line of somebody else's words begins as ours do"
    assert log == "    the whole log: ml-assets ops logs run-1"
