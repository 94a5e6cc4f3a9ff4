"""Lost attempts on the page of a model and in its report: why, where, and what went on."""

from ml_assets.adapters.metadata import recovery_metadata
from ml_assets.reports.tables import lost_attempts
from ml_assets.spec.training_program import World
from ml_assets.spec.training_program.events import Lost

FOUR = World(nodes=4, procs=2)
TOLD = Lost(
    attempt=3,
    cause="GpuFault",
    kind="infrastructure",
    what="a GPU failed: Xid 79",
    exit_code=70,
    pod="flights-a3-1",
    node="bad",
    world=FOUR,
    goes_on=FOUR,
    avoid=("bad",),
)
OLD = Lost.model_validate_json(
    '{"cause":"Evicted","world":{"nodes":4,"procs":2,"threads":1},"goes_on":{"nodes":2,"procs":2}}'
)


def test_a_lost_attempt_says_why_where_and_what_went_on() -> None:
    old, told = lost_attempts([OLD, TOLD]).rows
    assert old == ["–", "Evicted", "–", "–", "–", "–", "–", "2 nodes, 4 processes"]
    assert told == [
        "3",
        "GpuFault",
        "taken away",
        "a GPU failed: Xid 79",
        "70",
        "flights-a3-1",
        "bad",
        "4 nodes, 8 processes, without bad",
    ]


def test_the_page_has_them_as_a_table_and_nothing_where_nothing_was_lost() -> None:
    quiet = recovery_metadata(1, [], FOUR)
    assert quiet == {"attempts": 1, "nodes": 4, "processes": 8}
    shown = recovery_metadata(3, [OLD, TOLD], FOUR)
    assert shown["causes"] == "Evicted, GpuFault"
    rows = [record.data for record in shown["lost_attempts"].records]
    assert [row["node"] for row in rows] == ["–", "bad"]
