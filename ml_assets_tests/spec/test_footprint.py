"""What a training needs of memory is arithmetic, and the arithmetic is held to torch's networks."""

import pytest

from ml_assets.errors import DoesNotFit
from ml_assets.spec.footprint import Room, footprint, parameters_on, require_fits
from ml_assets.spec.program import (
    CategoricalColumn,
    NumericColumn,
    Preprocessing,
    ShardSchema,
    World,
)
from ml_assets.spec.training import Mlp, TabM, TrainingSpec
from ml_assets.training.models.families import build

COLUMNS = Preprocessing(
    numeric=tuple(NumericColumn(name=name, mean=0, std=1) for name in ("x", "z")),
    null_flags=("z",),
    categorical=tuple(
        CategoricalColumn(name=str(n), vocabulary=tuple(map(str, range(n)))) for n in (3, 40, 500)
    ),
)
CLASSES = ("a", "b", "c")
SCHEMA = ShardSchema(
    task="multiclass",
    classes=CLASSES,
    preprocessing=COLUMNS,
    label_rate=(0.2, 0.3, 0.5),
    splits={},
)
MODELS = [
    kind(family=family, width=width, depth=depth)  # pyright: ignore[reportArgumentType]
    for kind, family in ((Mlp, "mlp"), (TabM, "tabm"))
    for width in (1, 24, 129)
    for depth in (1, 2, 4)
]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{m.family}-{m.width}-{m.depth}")
def test_parameters_are_those_of_the_real_network(model: Mlp | TabM) -> None:
    network = build(model, COLUMNS, "multiclass", CLASSES)
    assert parameters_on(model, SCHEMA) == sum(p.numel() for p in network.parameters())


WIDE = Mlp(family="mlp", width=1024, depth=1)
ROWS = {"batch_size": 24, "microbatches": 24}


@pytest.mark.parametrize(
    ("strategy", "world", "sharing"),
    [
        ("replicate", World(procs=4), 1),
        ("shard", World(procs=4), 4),
        ("shard", World(nodes=4, procs=2), 8),
        ("hybrid", World(nodes=4, procs=2), 2),
    ],
)
def test_the_state_is_divided_as_the_strategy_divides_it(
    strategy: str, world: World, sharing: int
) -> None:
    spec = TrainingSpec(**ROWS, strategy=strategy, processes=world.processes)  # pyright: ignore[reportArgumentType]
    rows = 24 // world.processes
    state = 1_000_000 * 4 * 4 // sharing + rows * 1024 * 4
    assert footprint(1_000_000, WIDE, spec, world).bytes == max(state, 4_000_000)


def test_a_process_that_fits_alone_may_not_fit_beside_the_others() -> None:
    spec = TrainingSpec(**ROWS, strategy="replicate")  # pyright: ignore[reportArgumentType]
    room = Room(30_000_000, "a pod")
    require_fits(WIDE, spec, World(procs=1), 1_000_000, room)
    with pytest.raises(DoesNotFit, match=r"2 of them 0.03 GB .* and a pod has 0.03 GB"):
        require_fits(WIDE, spec, World(procs=2), 1_000_000, room)
    require_fits(WIDE, spec, World(procs=2), 1_000_000, Room(30_000_000, "a pod", gpus=True))
