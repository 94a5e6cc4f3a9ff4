"""An entity has its place in the traffic, whoever asks; who names a model judges none."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from ml_assets.extras.serving.batching import Limits
from ml_assets.extras.serving.prediction_log import Answered
from ml_assets.extras.serving.traffic import Traffic, draw
from ml_assets.spec.rollout import RolloutSpec
from ml_assets_tests.extras.serving.test_encoding import MANIFEST


def test_a_share_of_the_entities_is_the_canarys_and_always_the_same() -> None:
    places = [draw("orders", [f"customer {n}"]) for n in range(10_000)]
    assert 0.04 < sum(place < 0.05 for place in places) / 10_000 < 0.06
    assert places == [draw("orders", [f"customer {n}"]) for n in range(10_000)]


def test_another_pipeline_chooses_others() -> None:
    mine, other = ([draw(p, [n]) < 0.05 for n in range(10_000)] for p in ("orders", "returns"))
    assert sum(map(bool.__and__, mine, other)) < 100


def test_a_number_is_the_same_in_every_protocol() -> None:
    assert draw("orders", [7, "x", None]) == draw("orders", [7.0, "x", None])


def test_a_time_that_was_looked_up_is_drawn_by_its_text() -> None:
    time = datetime(2024, 5, 1, 5, tzinfo=UTC)
    assert draw("orders", [time]) == draw("orders", [str(time)])


class Model:
    """It says the same of each row."""

    def __init__(self, name: str) -> None:
        self.digest = name * 64
        self.release = SimpleNamespace(manifest=MANIFEST)

    async def predict(self, columns: object, count: int) -> object:
        return np.full((count, 1), 0.5)


CHAMPION, CANARY = Model("a"), Model("b")


def logged(canary: Model | None, version: Model | None) -> Sequence[tuple[str, str]]:
    """The stage and the order of each row that is logged, of a request for eight orders."""
    rollout = RolloutSpec(entity=("order",), share=0.5)
    spec = SimpleNamespace(
        release=SimpleNamespace(rollout=rollout),
        features=SimpleNamespace(key=("order",)),
        label=SimpleNamespace(task="binary"),
    )
    pipeline = SimpleNamespace(name="orders", spec=spec)
    following = SimpleNamespace(pipeline=pipeline, served=CHAMPION, canary=canary)
    log: list[Answered] = []
    writer = SimpleNamespace(add=log.append)
    traffic = Traffic(cast(Any, following), Limits(), print, cast(Any, writer))
    columns = {"order": [*range(8)]}
    asyncio.run(traffic.predict(columns, 8, "request", cast(Any, version)))
    return sorted((one.stage, str(order)) for one in log for order in one.key["order"])


@pytest.mark.parametrize("version", [CHAMPION, CANARY], ids=["champion", "canary"])
def test_who_names_a_model_does_not_choose_the_rows_that_judge_the_canary(version: Model) -> None:
    assert {stage for stage, _ in logged(CANARY, None)} == {"production", "canary"}
    assert logged(CANARY, version) == []


def test_without_a_canary_each_row_is_logged() -> None:
    assert logged(None, CHAMPION) == [("production", str(order)) for order in range(8)]
