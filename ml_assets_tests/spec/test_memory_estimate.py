"""What a training needs of memory is arithmetic, and the arithmetic is held to torch's networks."""

import pytest

from ml_assets.errors import DoesNotFit
from ml_assets.spec.gpt import Gpt, parameter_count
from ml_assets.spec.memory_estimate import Room, footprint, parameters_on, require_fits
from ml_assets.spec.parallel import Parallel
from ml_assets.spec.training import Mlp, Module, TabM, TrainingSpec
from ml_assets.spec.training_program import (
    CategoricalColumn,
    NumericColumn,
    Preprocessing,
    ShardSchema,
    World,
)
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


def test_a_language_model_is_counted_by_its_tokens_and_what_its_blocks_hold() -> None:
    model = Gpt(family="gpt", preset="124m", width=768, depth=12, heads=12)
    spec = TrainingSpec(batch_size=32, microbatches=4, strategy="replicate")
    count = parameter_count(model, 50_257)
    found: list[int] = []
    for mode in ("none", "selective", "block"):
        changed = spec.model_copy(update={"activation_checkpointing": mode})
        found.append(footprint(count, model, changed, World(procs=2), context=1024).bytes)
    state, tokens = count * 4 * 4, 16 * 1024
    assert found[0] == state + tokens * 17 * 768 * 12 * 4
    assert found[2] == state + tokens * (11 + 17) * 768 * 4
    assert found[0] > found[1] > found[2]
    parted = spec.model_copy(update={"strategy": "shard", "parallel": Parallel(tensor=2)})
    alone = spec.model_copy(update={"strategy": "shard"})
    two, four = World(procs=2), World(procs=4)
    assert footprint(count, model, parted, two, context=1024).bytes * 1.0 == pytest.approx(
        count * 8 + tokens * 17 * 768 * 12 * 4, rel=1e-6
    )
    assert footprint(count, model, parted, four, context=1024).bytes == pytest.approx(
        footprint(count, model, alone, four, context=1024).bytes, rel=1e-6
    )
    small = Room(8_000_000_000, "a pod")
    with pytest.raises(DoesNotFit, match=r"16 windows of 1,024 tokens.*set training\.activation"):
        require_fits(model, spec, two, count, small, context=1024)
    less = spec.model_copy(update={"activation_checkpointing": "block"})
    require_fits(model, less, two, count, small, context=1024)


def test_of_a_team_s_own_network_what_was_measured_counts() -> None:
    model = Module(family="module", module="network.py:build")
    spec = TrainingSpec(**ROWS, strategy="replicate")  # pyright: ignore[reportArgumentType]
    two = World(procs=2)
    assert footprint(1000, model, spec, two, held=50.5).bytes == 1000 * 4 * 4 + int(12 * 50.5 * 4)
    again = spec.model_copy(update={"activation_checkpointing": "block"})
    assert footprint(1000, model, again, two, held=50.5).bytes == 1000 * 4 * 4
    with pytest.raises(DoesNotFit, match=r"Lower sizes in model\.config, lower training\.batch"):
        require_fits(model, spec, two, 1000, Room(30_000, "a pod"), held=50.5)


def test_a_process_that_fits_alone_may_not_fit_beside_the_others() -> None:
    spec = TrainingSpec(**ROWS, strategy="replicate")  # pyright: ignore[reportArgumentType]
    room = Room(30_000_000, "a pod")
    require_fits(WIDE, spec, World(procs=1), 1_000_000, room)
    with pytest.raises(DoesNotFit, match=r"2 of them 0.03 GB .* and a pod has 0.03 GB"):
        require_fits(WIDE, spec, World(procs=2), 1_000_000, room)
    require_fits(WIDE, spec, World(procs=2), 1_000_000, Room(30_000_000, "a pod", gpus=True))
