"""What is printed of a proof, and its exit code."""

import json
from types import SimpleNamespace

import pytest

from ml_assets.extras.prove import proof
from ml_assets.extras.prove.reproduction import Agreement, Reproduction
from ml_assets_tests.conftest import Cli


@pytest.mark.parametrize(
    ("outcomes", "verdict", "code"),
    [
        (["equal", "equal"], "equal", 0),
        (["equal", "tolerated"], "tolerated", 0),
        (["tolerated", "not compared"], "not compared", 1),
        (["not compared"], "not compared", 1),
        (["equal", "differs"], "differs", 3),
    ],
)
def test_the_worst_outcome_is_the_verdict_and_decides_the_exit_code(
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    outcomes: list[Agreement],
    verdict: str,
    code: int,
) -> None:
    found = SimpleNamespace(
        claim=SimpleNamespace(said="run 3f2a91c0", pipeline="p"),
        notes=[],
        differences=list,
        verdicts=lambda: [Reproduction("p/trained_model", outcome, "") for outcome in outcomes],
    )
    monkeypatch.setattr(proof, "Proof", lambda *_: found)
    assert json.loads(cli("release", "prove", "p", "--json", code=code).out)["verdict"] == verdict
