"""docs/faults.md as it is committed: of a whole campaign, and what did not hold has its reason.

A campaign goes on without what this machine lacks.
"""

import re
from pathlib import Path

import pytest

from ml_assets_tests.faults import __main__ as faults
from ml_assets_tests.faults.__main__ import PAGE
from ml_assets_tests.faults.page import KNOWN, write_page
from ml_assets_tests.faults.results import RESULTS, Played, Strike, recall, sentence


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


def test_each_reason_is_of_one_campaign() -> None:
    rounds = {f"{one.arena} {one.seed} {one.commit}" for one in recall(RESULTS)}
    for of, begin, _ in KNOWN:
        assert re.fullmatch(r"[a-z]+ \d+ [0-9a-f]{7}", of), f"{of}, {begin}: name its commit"
        assert any(of in one for one in rounds), f"{of} is no round of {RESULTS.name}"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "2026-11-28 17:45:45 +0000 - dagster - ERROR - lilies__sources - f8dd3124-4b8b - 773 -"
            " RUN_FAILURE - The disk is full.",
            "The disk is full.",
        ),
        (
            "\x1b[32m2026-11-30 00:48:02 +0000\x1b[0m - dagster.daemon - \x1b[34mINFO\x1b[0m -"
            " The disk is full.",
            "The disk is full.",
        ),
        ("overfitting: the loss rose, an update was refused", ""),
        ("  over = Following(refused)\nerror: The store is away.", "error: The store is away."),
        ("WARNING:root:Retrying: connection refused", "Retrying: connection refused"),
        ("dagster._core.errors.Away: the server was killed", "the server was killed"),
    ],
)
def test_of_a_log_and_its_stacks_the_sentence_is_shown(said: str, shown: str) -> None:
    assert sentence(said) == shown


def test_of_faults_that_struck_together_nobody_tells_what_people_saw_of_one() -> None:
    both = [Strike("a rank is killed", 1.0, together=2, seen="the rank was killed")]
    alone = [Strike("a rank is killed", 1.0, seen="A process was lost")]
    assert "the rank was killed" not in write_page([Played("laptop", 1, both, [], "aaa")])
    page = write_page([Played("laptop", 1, [*both, *alone], [], "aaa", product="bbb")])
    assert "`A process was lost`" in page and "Of commit aaa (product bbb)" in page


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
