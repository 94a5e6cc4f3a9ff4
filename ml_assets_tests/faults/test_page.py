"""docs/faults.md as it is committed: of a whole campaign, and what did not hold has its reason.

A campaign goes on without what this machine lacks.
"""

from pathlib import Path

import pytest

from ml_assets_tests.faults import __main__ as faults
from ml_assets_tests.faults.__main__ import PAGE
from ml_assets_tests.faults.page import write_page
from ml_assets_tests.faults.results import RESULTS, Played, Strike, recall


def test_the_page_is_what_the_kept_rounds_say() -> None:
    assert PAGE.read_text() == write_page(recall(RESULTS)), "run: make faults"


def test_a_thousand_faults_struck_the_commit_of_the_page_and_what_did_not_hold_is_explained() -> (
    None
):
    rounds = recall(RESULTS)
    newest = [played for played in rounds if played.commit == rounds[-1].commit]
    assert sum(len(played.strikes) for played in newest) >= 1000
    assert "Not explained yet" not in PAGE.read_text()


def test_the_page_is_of_the_newest_commit_and_tells_what_earlier_campaigns_found() -> None:
    left_out = [f"a-session: epoch {number} was left out" for number in (1, 2, 3)]
    old = Played("laptop", 1, [Strike("a rank is killed", 1.0)], left_out, "aaa")
    new = Played("laptop", 2, [Strike("a rank is killed", 1.0, broken=left_out)], [], "bbb")
    page = write_page([old, old, new])
    assert "Of commit bbb" in page and "1 fault struck in 1 round, " in page
    assert "after a rank is killed: a-session: epoch 1 was left out (and 2 other epochs)" in page
    before = page.partition("## Campaigns before")[2]
    assert "| aaa |" in before and "| bbb |" not in before
    assert "- Not explained yet (issue 22). (laptop 1, laptop 1)" in before


def test_a_place_whose_server_is_not_installed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(arena: str, _folder: Path) -> None:
        if arena == "postgres":
            pytest.skip("Postgres is not installed")
        if arena == "pods":
            raise AssertionError("the work fails by itself: its rounds say so")

    monkeypatch.setattr(faults, "undisturbed", measured)
    asked = ["laptop", "postgres", "pods", "laptop"]
    assert faults.those_at_hand(asked, tmp_path) == ["laptop", "pods", "laptop"]
    assert capsys.readouterr().out == "postgres is left out: Postgres is not installed\n"
