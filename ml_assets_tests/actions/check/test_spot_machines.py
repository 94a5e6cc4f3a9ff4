"""A spec for machines that are taken away is held to arithmetic, and the arithmetic to torch."""

import pytest
from torch.nn import Parameter

from ml_assets.actions.check.spot_machines import (
    StateSize,
    judge_spot,
    state_size,
    words_from_limit,
)
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.training import Mlp, ModelSpec, Spot, TabM, TrainingSpec
from ml_assets.spec.training_program import CategoricalColumn, NumericColumn, Preprocessing
from ml_assets.training.models.families import build

MODELS = [
    Mlp(family="mlp", width=32, depth=3),
    TabM(family="tabm", width=24, depth=2, members=5, embedding_limit=8),
]
WORDS = [3, 40, 500]


def spec_of(model: ModelSpec, **training: object) -> PipelineSpec:
    """Only what the arithmetic reads; the rest of a pipeline is not made up."""
    from ml_assets.spec.features import FeaturesSpec
    from ml_assets.spec.pipeline import LabelSpec

    return PipelineSpec.model_construct(
        model=model,
        training=TrainingSpec(**training),  # pyright: ignore[reportArgumentType]
        label=LabelSpec(column="y", task="multiclass", classes=("a", "b", "c")),
        features=FeaturesSpec(
            function="features.py:build",
            key=("k",),
            decision_at="at",
            numeric=("x", "z"),
            categorical=("c", "d", "e"),
        ),
    )


@pytest.mark.parametrize("model", MODELS)
def test_parameters_are_counted_as_torch_counts_them(model: ModelSpec) -> None:
    columns = Preprocessing(
        numeric=tuple(NumericColumn(name=name, mean=0, std=1) for name in ("x", "z")),
        null_flags=("z",),
        categorical=tuple(
            CategoricalColumn(name=str(n), vocabulary=tuple(map(str, range(n)))) for n in WORDS
        ),
    )
    network = build(model, columns, "multiclass", ("a", "b", "c"))
    real = sum(p.numel() for p in network.parameters() if isinstance(p, Parameter))
    size = state_size(spec_of(model), WORDS, null_flags=1)
    assert size.parameters == real
    assert size.bytes == real * 3 * 4  # AdamW: the weight and two averages


def test_words_that_nobody_knows_yet_are_said_to_be_a_guess() -> None:
    size = state_size(spec_of(MODELS[0]))
    assert f"{words_from_limit(MODELS[0])} words a category, a guess" in size.how
    assert state_size(spec_of(MODELS[0], optimizer="sgd")).bytes * 3 == size.bytes * 2


SIZE = StateSize(100_000_000, 1_200_000_000, "100,000,000 parameters x 3 numbers x 4 bytes")


@pytest.mark.parametrize(
    ("notice", "speed", "saves", "fits", "says"),
    [
        (120, 100, {"checkpoint_minutes": 10.0}, True, "12.0 s at 100 MB/s; 39.0 s of a notice"),
        (120, 100, {"checkpoint_every": 100}, True, "39.0 s of a notice of 120 s"),
        (30, 100, {"checkpoint_every": 100}, False, "take 39.0 s, but the notice is 30 s"),
        (0, 100, {"checkpoint_every": 100}, True, "12.0 s"),
        (120, 100, {}, False, "set training.checkpoint_minutes or training.checkpoint_every"),
        (120, 100, {"checkpoint_minutes": 30.0}, True, "12.0 s"),
        (120, 100, {"checkpoint_minutes": 45.0}, False, "loses up to 45 minutes of all machines"),
        (120, 10, {"checkpoint_minutes": 1.0}, False, "longer than the 60.0 s between two saves"),
    ],
)
def test_size_and_interval_are_held_to_the_notice(
    notice: float, speed: float, saves: dict[str, float], fits: bool, says: str
) -> None:
    spot = Spot(notice_seconds=notice, write_mb_per_second=speed)
    verdict = judge_spot(TrainingSpec(spot=spot, **saves), SIZE)  # pyright: ignore[reportArgumentType]
    assert verdict.fits is fits
    assert says in verdict.reason


def test_a_spec_that_is_not_on_spot_fits() -> None:
    assert judge_spot(TrainingSpec(), SIZE).fits
