"""The audits of exactly the tables that a set goes back to: found, missing, broken, old."""

import polars as pl
import pytest

from ml_assets.assets.validated_table.audits import AuditOutcome, audit_outcome, audits
from ml_assets.assets.validated_table.contract.compiled import audit
from ml_assets.assets.validated_table.contract.suite import Contract, Expectation
from ml_assets.graph.publish import Draft, Work, input_version
from ml_assets.spec.records import InputVersion
from ml_assets.store.layout import Address, read_record
from ml_assets.store.open import open_snapshots
from ml_assets_tests.worlds.opened import pipeline_of

RAW = Address("delays", "raw_snapshot", "flights", "2013-01-07")
TABLE = Address("delays", "validated_table", "flights", "2013-01-07")
BETWEEN = Address("delays", "derived_table", "closed", "2013-01-07")
FEATURES = Address("delays", "feature_set", None, "2013-01-07")
SET = Address("delays", "training_set")


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path))
    return open_snapshots(str(tmp_path / "snapshots"))


def published(store, address, inputs=(), attributes=None, value=1):
    base = store.resolve()
    with Draft(pipeline_of(store=store), Work(address, "c", tuple(inputs), "run"), base) as draft:
        draft.table(pl.DataFrame({"id": [value]}), ["id"])
        done = draft.publish(attributes=attributes or {})
    return input_version(done.record, done.commit)


def whole(store, attributes):
    """From the raw file to the training set; the set's record."""
    raw = published(store, RAW)
    table = published(store, TABLE, [raw], attributes)
    closed = published(store, BETWEEN, [table])
    features = published(store, FEATURES, [table, closed])
    published(store, SET, [features])
    return read_record(store, store.resolve(), SET)


def green(**more):
    return {"audit": AuditOutcome(expectations=3, **more).model_dump(mode="json")}


def test_the_way_back_goes_through_tables_in_between_and_names_each_audit_once(store):
    (found,) = audits(pipeline_of(store=store).now(), whole(store, green(warned=("volume",))))
    assert (found.key, found.partition) == (TABLE.key, TABLE.partition)
    assert found.found and found.failed == () and found.warned == ("volume",)


def test_another_version_published_since_does_not_hide_the_one_that_was_read(store):
    record = whole(store, green())
    published(store, TABLE, attributes=green(failed=("id_not_null",)), value=2)
    (found,) = audits(pipeline_of(store=store).now(), record)
    assert found.found and found.failed == ()


def test_a_broken_contract_is_told_whoever_published_it(store):
    (found,) = audits(pipeline_of(store=store).now(), whole(store, green(failed=("id_not_null",))))
    assert found.failed == ("id_not_null",)


def test_a_record_that_is_not_there_is_not_found(store):
    record = whole(store, green())
    gone = InputVersion(key=TABLE.key, partition="2013-01-14", version="9" * 64, commit=None)
    lost = record.model_copy(update={"inputs": (*record.inputs, gone)})
    assert [one.found for one in audits(pipeline_of(store=store).now(), lost)] == [True, False]
    nowhere = record.inputs[0].model_copy(update={"commit": "f" * 64, "version": "8" * 64})
    (found,) = audits(
        pipeline_of(store=store).now(), record.model_copy(update={"inputs": (nowhere,)})
    )
    assert not found.found and found.key == FEATURES.key


def test_of_a_commit_that_house_keeping_took_the_same_version_counts_where_it_is_now(store):
    record = whole(store, green())
    moved = record.inputs[0].model_copy(update={"commit": "f" * 64})
    (found,) = audits(
        pipeline_of(store=store).now(), record.model_copy(update={"inputs": (moved,)})
    )
    assert found.found


def test_a_record_from_before_was_published_so_its_contract_was_met(store):
    (found,) = audits(
        pipeline_of(store=store).now(), whole(store, {"warnings": ["2 rows are odd"]})
    )
    assert found.found and found.failed == () and found.warned == ("2 rows are odd",)


def test_a_record_that_says_nothing_of_an_audit_is_not_green(store):
    (found,) = audits(pipeline_of(store=store).now(), whole(store, {}))
    assert found.failed


def test_the_outcome_names_what_was_not_met_by_severity():
    expectations = tuple(
        Expectation(
            check_name=name,
            type="expect_column_values_to_be_between",
            kwargs={"column": name, "min_value": 0},
            severity=severity,
        )
        for name, severity in (("a", "critical"), ("b", "warning"), ("c", "warning"))
    )
    frame = pl.DataFrame({"a": [-1], "b": [-1], "c": [1]})
    outcome = audit_outcome(audit(frame, Contract("c", expectations)))
    assert outcome.expectations == 3
    assert (outcome.failed, outcome.warned) == (("a",), ("b",))
