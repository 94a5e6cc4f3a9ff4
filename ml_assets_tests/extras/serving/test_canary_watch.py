"""A canary is out for what its traffic shows, and stays in for what chance explains."""

import numpy as np
import pytest

from ml_assets.extras.serving.canary_watch import CanaryWatch, RecentAnswers, gap, surely
from ml_assets.spec.rollout import AbortSpec


def seen(
    draw: np.random.Generator, rows: int, shift: float = 0.0, slow: float = 1.0
) -> RecentAnswers:
    found = RecentAnswers()
    for prediction in draw.beta(2, 5, rows):
        answer = np.array([[min(1.0, prediction + shift)]])
        found.answered(answer, slow * draw.lognormal(-5, 0.4))
    return found


def watch(canary: RecentAnswers, champion: RecentAnswers) -> CanaryWatch:
    return CanaryWatch(AbortSpec(), "binary", champion, canary)


@pytest.mark.daemon
def test_a_canary_like_the_champion_is_never_out() -> None:
    """Looked at after each of 300 rows, forty times over."""
    for seed in range(40):
        draw = np.random.default_rng(seed)
        champion, canary = seen(draw, 2000), seen(draw, 49)
        for _ in range(300):
            canary.answered(draw.beta(2, 5, (1, 1)), draw.lognormal(-5, 0.4))
            assert watch(canary, champion).reason() is None


def test_a_moment_in_which_the_machine_was_slow_for_both_puts_none_out() -> None:
    """Of twenty rows one is the canary's: its last thousand are of twenty times as long."""
    draw = np.random.default_rng(7)
    both = CanaryWatch(AbortSpec(), "binary")
    for number in range(40_000):
        slow = 50.0 if 10_000 < number < 13_000 else 1.0
        answer, seconds = draw.beta(2, 5, (1, 1)), slow * draw.lognormal(-5, 0.4)
        by_canary = number % 20 == 0
        (both.canary.answered if by_canary else both.champion_answered)(answer, seconds)
        if by_canary:
            assert both.reason() is None, number


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ({"shift": 0.4}, "predictions: the share below some value differs by"),
        ({"slow": 10.0}, "times the champion's 95th percentile"),
    ],
)
def test_a_bad_canary_is_out_after_few_rows(planted: dict[str, float], said: str) -> None:
    draw = np.random.default_rng(7)
    reason = watch(seen(draw, 60, **planted), seen(draw, 1000)).reason()
    assert reason and said in reason


def test_a_canary_that_cannot_answer_is_out() -> None:
    draw = np.random.default_rng(7)
    champion, canary = seen(draw, 1000), seen(draw, 50)
    canary.could_not(1, 0.01)
    assert watch(canary, champion).reason() is None, "one may be bad luck"
    canary.could_not(9, 0.01)
    assert "could not answer 10 of 60 rows" in (watch(canary, champion).reason() or "")


def test_nothing_is_judged_by_few_rows() -> None:
    canary = RecentAnswers()
    canary.could_not(49, 9.0)
    assert watch(canary, seen(np.random.default_rng(7), 1000)).reason() is None


def test_a_prediction_that_hardly_moved_has_not_moved() -> None:
    same = np.full(500, 0.31)
    assert gap(same, same + 0.019, 0.02) == 0
    assert gap(same + 0.019, same, 0.02) == 0
    assert gap(same, same + 0.1, 0.02) == 1


def test_what_hits_show_grows_with_them() -> None:
    assert surely(0, 50) == 0
    assert surely(1, 50) < surely(10, 100) < surely(100, 1000) < 0.1
