"""What a training's log and page say of the order in which its rows are read."""

from typing import Any

import pytest

from ml_assets.assets.trained_model.training_job import row_order
from ml_assets.launch.launcher import TrainJob
from ml_assets.spec.training import LightGbm, Mlp, ModelSpec, TrainingSpec
from ml_assets.spec.training_program import NumericColumn, Preprocessing, Ref, Shard, ShardSchema

ROWS = 96_000


NETWORK = Mlp(family="mlp", width=8, depth=1)


def said(model: ModelSpec, task: Any = "binary", **training: Any) -> str | None:
    shards = tuple(Shard(rows=ROWS // 2, digest=2 * n, table=2 * n) for n in ("0" * 32, "1" * 32))
    schema = ShardSchema(
        task=task,
        classes=(),
        preprocessing=Preprocessing(
            numeric=(NumericColumn(name="x", mean=0.0, std=1.0),), null_flags=(), categorical=()
        ),
        label_rate=(),
        splits={"train": shards},
    )
    spec = TrainingSpec(epochs=1, batch_size=96, microbatches=4, **training)
    return row_order(TrainJob("p", model, spec, Ref(uri="/set", digest="2" * 64)), schema)


def test_rows_say_why_all_of_them_are_mixed() -> None:
    text = said(NETWORK)
    assert (
        text == "rows, all of the split mixed with each other: it lies whole on the machine's disk"
    )


@pytest.mark.parametrize(
    ("window", "share"),
    [
        (2, "8 blocks, 17% of the 96,000 rows. On the flights"),
        (11, "44 blocks, 94% of the 96,000 rows. On the flights"),
        (12, "48 blocks, all of the 96,000 rows: order: rows would mix them as well"),
        (99, "48 blocks, all of the 96,000 rows: order: rows would mix them as well"),
    ],
)
def test_blocks_say_what_share_of_the_rows_is_mixed_and_what_it_costs(
    window: int, share: str
) -> None:
    text = said(NETWORK, order="blocks", block_rows=2048, block_window=window)
    assert text is not None
    assert text.startswith("blocks, as training.order says")
    assert share in text


def test_blocks_of_queries_are_no_share_of_the_rows() -> None:
    text = said(
        Mlp(family="mlp", width=8, depth=1),
        "ranking",
        order="blocks",
        block_rows=96,
        block_window=2,
    )
    assert text is not None
    assert text.endswith("its rows come from 8 blocks at most")


def test_trees_take_all_rows_at_once() -> None:
    assert said(LightGbm(family="lightgbm")) is None
