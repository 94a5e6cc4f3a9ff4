"""A round in each place, with a fault that is named; a plant shows that a round can fail."""

from pathlib import Path

import pytest

from ml_assets_tests.faults.campaign import play
from ml_assets_tests.faults.history import INVARIANTS
from ml_assets_tests.faults.page import write_page

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.timeout(1800),  # two whole walks on a busy machine
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc"),
]


def test_a_round_on_a_laptop_holds_and_one_that_does_not_is_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (held,) = play("laptop", 7, tmp_path, "a rank is killed")
    assert held.broken == []
    page = write_page([held], "today")
    assert "| laptop | a rank is killed | 1 | 1 |" in page
    assert "## What did not hold\n\nNothing.\n" in page

    monkeypatch.setitem(INVARIANTS, "one champion at a time", lambda _: iter(["there are two"]))
    (broken,) = play("laptop", 8, tmp_path, "a rank is killed")
    page = write_page([held, broken], "today")
    assert "| laptop | a rank is killed | 2 | 1 |" in page
    assert "`one champion at a time: there are two`" in page


def test_a_round_in_pods_holds(tmp_path: Path) -> None:
    (strike,) = play("pods", 7, tmp_path, "a pod is drained")
    assert strike.broken == []
