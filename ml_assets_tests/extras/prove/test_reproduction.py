"""How a re-derivation compares with its record: what differs is named, and little is tolerated."""

from datetime import UTC, datetime

import polars as pl
import pytest

from ml_assets.extras.prove.reproduction import (
    TOLERANCE,
    decision_difference,
    metric_outcome,
    table_difference,
)
from ml_assets.spec.records import Decision, Evidence, GateResult

TABLE = pl.DataFrame({"id": [1, 2, 3], "x": [0.5, None, 2.0], "y": ["a", "b", "c"]})


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (TABLE.with_columns(x=pl.Series([0.5, 1.0, 2.0])), "values differ in x (1) of 3 rows"),
        (TABLE.with_columns(y=pl.lit("z")), "first at id 1: y 'a' then, 'z' now"),
        (TABLE.head(2), "2 rows, 3 then; 1 missing, first id 3"),
        (pl.concat([TABLE, TABLE.head(1).with_columns(id=pl.lit(9, pl.Int64))]), "first id 9"),
        (TABLE.drop("y"), "columns are missing: y"),
        (TABLE.with_columns(new=1), "columns are new: new"),
        (TABLE.cast({"x": pl.Float32}), "x is Float32, Float64 then"),
        (TABLE.select("id", "y", "x"), "columns in another order: id, y, x"),
        (TABLE, "the same values in other bytes"),
    ],
)
def test_the_first_thing_that_differs_in_a_table_is_named(now: pl.DataFrame, said: str) -> None:
    assert said in table_difference(TABLE, now, ["id"])


OTHER = "another kind of device (NVIDIA H100, AMD EPYC then)"


def test_on_the_same_kind_of_device_no_bit_may_differ() -> None:
    outcome, said = metric_outcome({"auc": 0.7}, {"auc": 0.7})
    assert outcome == "differs"
    assert "none may differ" in said


@pytest.mark.parametrize(
    ("loss", "outcome"),
    [(0.5 * (1 - TOLERANCE * 0.99), "tolerated"), (0.5 * (1 - TOLERANCE * 1.01), "differs")],
)
def test_on_another_kind_of_device_the_worst_metric_decides(loss: float, outcome: str) -> None:
    found, said = metric_outcome(
        {"auc": 0.7, "log_loss": 0.5}, {"auc": 0.7, "log_loss": loss}, OTHER
    )
    assert found == outcome
    assert said.startswith(f"{OTHER}: equal to 0.5% is asked, not bits")
    assert "log_loss" in said


def test_a_metric_that_is_gone_differs() -> None:
    assert metric_outcome({"auc": 0.7, "f1": 0.1}, {"auc": 0.7}, OTHER)[0] == "differs"
    assert metric_outcome({}, {}, OTHER)[0] == "differs"


def test_a_decision_is_another_one_where_a_gate_is() -> None:
    then = decision(floor=True)
    assert decision_difference(then, decision(floor=True)) == ""
    assert "gate floor: refused" in decision_difference(then, decision(floor=False))
    assert "other gates" in decision_difference(then, decision(ceiling=True))


def decision(**gates: bool) -> Decision:
    digest = "a" * 64
    return Decision(
        pipeline="p",
        evidence=Evidence(
            model=digest, report=digest, data=digest, code="1", policy=digest, champion=None
        ),
        gates=tuple(
            GateResult(name=name, passed=passed, value=None, bound=None, reason="so")
            for name, passed in gates.items()
        ),
        passed=all(gates.values()),
        reason="so",
        run="r",
        time=datetime.now(UTC),
    )
