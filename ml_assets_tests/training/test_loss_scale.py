"""The scale of fp16 losses is a pure function of which steps overflowed."""

from ml_assets.training.trainer_state import MOST_SKIPS, LossScale, TrainerState


def after(overflows: list[bool]) -> LossScale:
    scale = LossScale()
    for overflowed in overflows:
        scale = scale.after(overflowed=overflowed)
    return scale


def test_an_overflow_halves_the_scale_and_is_counted() -> None:
    scale = after([False, True, True, False])
    assert scale.scale == LossScale().scale / 4
    assert (scale.skipped, scale.skipped_in_a_row) == (2, 0)
    assert after([True] * MOST_SKIPS).skipped_in_a_row == MOST_SKIPS


def test_two_thousand_steps_without_one_double_it_up_to_a_limit() -> None:
    assert after([False] * 1999).scale == LossScale().scale
    assert after([False] * 2000).scale == 2 * LossScale().scale
    assert after([*[False] * 1999, True, *[False] * 1999]).scale == LossScale().scale / 2
    assert after([False] * 30_000).scale == 2.0**24


def test_it_is_in_the_state_of_a_checkpoint() -> None:
    state = TrainerState(step=3, loss_scale=after([True, False, False]))
    assert TrainerState.model_validate_json(state.model_dump_json()) == state
    assert TrainerState.model_validate_json('{"step": 3}').loss_scale is None
