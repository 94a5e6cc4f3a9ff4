"""The ledger as people read it: newest first, with what was refused and why."""

import json

from ml_assets.operations.history import history
from ml_assets.operations.workplace import open_pipeline
from ml_assets_tests.worlds.world import World


def test_decisions_refusals_and_moves_are_told_newest_first(released: World) -> None:
    told = history(open_pipeline("irises", released.settings))
    assert [one.what for one in told] == ["refused", "to production", "passed"]
    assert [one.entry.seq for one in told] == [3, 2, 1]
    refused, moved, passed = told
    assert refused.metric == passed.metric
    assert passed.metric.startswith("accuracy 0.9")
    assert moved.metric == ""
    assert "accuracy_floor" in refused.entry.reason
    assert {one.entry.author for one in told} == {"team:botany"}


def test_the_command_prints_a_table_and_the_whole_as_json(released: World) -> None:
    head, newest, *older = released.cli("history", "irises").splitlines()
    assert head.split()[:3] == ["when", "(UTC)", "model"]
    assert " refused " in newest
    assert len(older) == 2
    start = head.index("why")
    assert newest[start - 2 : start] == "  "
    document = json.loads(released.cli("history", "irises", "--json"))
    assert document["pipeline"] == "irises"
    gates = document["history"][0]["decision"]["gates"]
    assert [gate["name"] for gate in gates if not gate["passed"]] == ["accuracy_floor"]
    assert len(document["history"][0]["model"]) == 64


def test_before_any_decision_it_says_what_to_do(released: World) -> None:
    assert "ml-assets run flight_delays" in released.cli("history", "flight_delays")
