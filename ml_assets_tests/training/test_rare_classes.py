"""A class of 1 %: lifted in any way, a model ranks as well; once calibrated it says frequencies."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "rare_classes.py"


@pytest.fixture(scope="module")
def figures() -> dict[str, tuple[float, str]]:
    """Name -> value, and whether it holds."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "20000"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
    lines = [line.split() for line in done.stdout.splitlines()]
    return {w[0]: (float(w[1]), w[3]) for w in lines if w[-1:] in (["holds"], ["short"])}


@pytest.mark.parametrize("way", ["weighted", "focal", "oversampled"])
def test_lifting_a_rare_class_ruins_its_probabilities_and_calibration_mends_them(
    figures: dict[str, tuple[float, str]], way: str
) -> None:
    assert figures[f"{way}_raw_loss_ratio"][0] > 50
    for name in ("loss_ratio", "ece_ratio", "pr_auc_ratio"):
        assert figures[f"{way}_{name}"][1] == "holds", figures


def test_calibrating_a_plain_model_does_no_harm(figures: dict[str, tuple[float, str]]) -> None:
    assert figures["log_loss_loss_ratio"][0] == pytest.approx(1, abs=0.1)
    assert figures["log_loss_pr_auc_ratio"][0] == 1
