"""The planner: due is what differs from its record, and what follows from it; nothing else."""

from dataclasses import replace
from datetime import UTC, datetime

from ml_assets.automation.planner.plan import Node, contiguous, plan
from ml_assets.spec.records import InputVersion, StageRecord
from ml_assets.store.layout import Address, run_key
from ml_assets.store.pipeline_context import Winner

RAW = Address("p", "raw_snapshot", "s", "w1")
TABLE = Address("p", "validated_table", "s", "w1")
FEATURES = Address("p", "feature_set", partition="w1")
MODEL = Address("p", "trained_model")


def receipt(version: str) -> InputVersion:
    return InputVersion(key="source:s", partition="w1", version=version, commit=None)


def nodes(receipt_version: str = "r1", table_code: str = "c2") -> list[Node]:
    return [
        Node(RAW, "c1", fixed=(receipt(receipt_version),)),
        Node(TABLE, table_code, (RAW,)),
        Node(FEATURES, "c3", (TABLE,)),
    ]


def record(address: Address, code: str, version: str, *inputs: InputVersion) -> StageRecord:
    return StageRecord(
        key=address.key,
        partition=address.partition,
        run_key=run_key(address, code, inputs),
        code_version=code,
        data_version=version,
        rows=1,
        inputs=inputs,
        run="run",
        time=datetime.now(UTC),
    )


def made_from(address: Address, version: str) -> InputVersion:
    return InputVersion(
        key=address.key, partition=address.partition, version=version, commit="0" * 64
    )


RECORDS = {
    RAW: record(RAW, "c1", "v1", receipt("r1")),
    TABLE: record(TABLE, "c2", "v2", made_from(RAW, "v1")),
    FEATURES: record(FEATURES, "c3", "v3", made_from(TABLE, "v2")),
}


def due(planned: list[Node], records: dict[Address, StageRecord]) -> dict[str, str]:
    return {item.node.address.stage: item.reason for item in plan(planned, records).due}


def test_what_one_step_makes_is_due_together() -> None:
    saved = Address("p", "checkpoints")
    made = (made_from(FEATURES, "v3"),)
    both = [Node(a, "c4", (FEATURES,), step="p__train") for a in (saved, MODEL)]
    planned = [*nodes(), *both, Node(Address("p", "evaluation_report"), "c5", (MODEL,))]
    for there, lost in ((saved, MODEL), (MODEL, saved)):
        report = record(planned[-1].address, "c5", "v5", made_from(MODEL, "v4"))
        records = {**RECORDS, there: record(there, "c4", "v4", *made), planned[-1].address: report}
        assert due(planned, records) == {
            there.stage: f"it is made together with {lost}",
            lost.stage: "never made",
            "evaluation_report": "an input is due",
        }
    whole = {one: record(one, "c4", "v4", *made) for one in (saved, MODEL)}
    assert due(planned[:-1], {**RECORDS, **whole}) == {}


def test_nothing_is_due_when_code_and_inputs_are_the_same() -> None:
    assert due(nodes(), RECORDS) == {}


def test_everything_is_due_at_first() -> None:
    assert set(due(nodes(), {}).values()) == {"never made"}


def test_a_source_that_changed_makes_all_that_follows_due() -> None:
    assert due(nodes(receipt_version="r2"), RECORDS) == {
        "raw_snapshot": "an input changed",
        "validated_table": "an input is due",
        "feature_set": "an input is due",
    }


def test_code_that_changed_is_due_and_what_comes_before_it_is_not() -> None:
    found = due(nodes(table_code="c9"), RECORDS)
    assert found["validated_table"] == "its code or its contract changed"
    assert "raw_snapshot" not in found


def test_a_model_that_a_search_found_better_settings_for_says_so() -> None:
    def model(of: StageRecord, code: str, won: Winner | None) -> str:
        nodes = [Node(MODEL, code, winner=won)]
        return due(nodes, {MODEL: of}).get("trained_model", "")

    own = record(MODEL, "c1", "v1")
    searched = own.model_copy(update={"attributes": {"search": {"values": {"model.width": 64}}}})
    won = Winner("p-study-1", 4, "0" * 64, {"model.width": 64}, receipt("r1"))
    other = replace(won, trial=5, values={"model.width": 96})
    by = "it is trained with the settings of a search's winner: trial"
    assert model(own, "c2", won) == f"{by} 4 of p-study-1"
    assert model(searched, "c2", other) == f"{by} 5 of p-study-1"
    assert model(searched, "c2", None).startswith(
        "it is trained with its spec's own settings again"
    )
    assert (
        model(searched, "c2", won)
        == model(own, "c2", None)
        == "its code or its part of the spec changed"
    )
    assert model(searched, "c1", won) == ""


def test_an_input_that_was_made_again_alone_is_noticed() -> None:
    moved = {**RECORDS, TABLE: record(TABLE, "c2", "v9", made_from(RAW, "v1"))}
    assert due(nodes(), moved) == {"feature_set": "an input changed"}


def test_work_done_afresh_stands_until_it_is_asked_for_afresh_again() -> None:
    made = made_from(RAW, "v1")
    salted = record(TABLE, "c2", "v2", made).model_copy(
        update={"run_key": run_key(TABLE, "c2", (made,), "salt"), "attributes": {"salt": "salt"}}
    )
    assert due(nodes(), {**RECORDS, TABLE: salted}) == {}
    again = [Node(TABLE, "c2", (RAW,), salt="other")]
    assert due(again, {**RECORDS, TABLE: salted}) == {"validated_table": "asked for again"}


def test_the_summary_says_what_is_skipped_and_why() -> None:
    assert plan(nodes(), RECORDS).summary() == [
        "skip  p/raw_snapshot/raw_s [w1]: same code, same inputs",
        "skip  p/validated_table/s [w1]: same code, same inputs",
        "skip  p/feature_set [w1]: same code, same inputs",
    ]


def test_ranges_leave_out_what_is_not_due() -> None:
    order = ["a", "b", "c", "d", "e"]
    assert contiguous(["a", "b", "d", "e"], order) == [("a", "b"), ("d", "e")]
    assert contiguous([], order) == []
