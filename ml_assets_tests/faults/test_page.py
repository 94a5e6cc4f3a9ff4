"""docs/faults.md as it is committed: of a whole campaign, and what did not hold has its reason."""

from ml_assets_tests.faults.__main__ import PAGE
from ml_assets_tests.faults.page import write_page
from ml_assets_tests.faults.results import RESULTS, recall


def test_the_page_is_what_the_kept_rounds_say() -> None:
    assert PAGE.read_text() == write_page(recall(RESULTS)), "run: make faults"


def test_a_thousand_faults_struck_one_commit_and_each_round_that_did_not_hold_is_explained() -> (
    None
):
    rounds = recall(RESULTS)
    assert sum(len(played.strikes) for played in rounds) >= 1000
    assert len({played.commit for played in rounds}) == 1
    assert "Not explained yet" not in PAGE.read_text()
