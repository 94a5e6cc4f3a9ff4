"""A model that no longer answers says so at once."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from ml_assets.errors import MlAssetsError
from ml_assets.extras.serving.batching import Batcher, Limits
from ml_assets.extras.serving.encoding import Encoded
from ml_assets.extras.serving.served_release import ServedModel


async def answers(closed: bool) -> int:
    """The rows that a model answers, in a server that is made of little else."""

    async def predict(asked: Encoded) -> np.ndarray:
        return np.zeros((len(asked), 1))

    async def end() -> None:
        pass

    row = Encoded(np.zeros((1, 1), np.float32), np.zeros((1, 0), np.int32))
    told = SimpleNamespace(labels=lambda _: SimpleNamespace(inc=lambda _: None))
    stand_ins: list[Any] = [
        SimpleNamespace(model=SimpleNamespace(digest="a" * 64)),
        SimpleNamespace(encode=lambda *_: row),
        SimpleNamespace(end=end),
        Batcher(predict, Limits(), lambda _: None),
        SimpleNamespace(rows=told),
    ]
    served = cast(Any, ServedModel)(*stand_ins)
    if closed:
        await served.close()
    async with asyncio.timeout(60):
        return len(await served.predict({}, 1))


def test_a_request_that_comes_to_a_closed_model_is_told_so() -> None:
    assert asyncio.run(answers(closed=False)) == 1
    with pytest.raises(MlAssetsError, match="was replaced or taken out while the request came"):
        asyncio.run(answers(closed=True))
