"""What waits is computed together, in order; who comes to a full queue is sent away."""

import asyncio

import numpy as np
import pytest

from ml_assets.errors import StorageError
from ml_assets.extras.serving.batching import Batcher, Limits, QueueFull
from ml_assets.extras.serving.encoding import Encoded


def rows(*values: float) -> Encoded:
    numeric = np.array([values], np.float32).T
    return Encoded(numeric, np.zeros((len(values), 0), np.int32))


class Model:
    """Doubles what it is asked, when it is let."""

    def __init__(self) -> None:
        self.batches: list[list[float]] = []
        self.may = asyncio.Event()

    async def predict(self, asked: Encoded) -> np.ndarray:
        self.batches.append(asked.numeric[:, 0].tolist())
        await self.may.wait()
        if (asked.numeric < 0).any():
            raise StorageError("a negative row")
        return 2 * asked.numeric.astype(np.float64)


async def ask_while_busy(limits: Limits, *asked: Encoded) -> tuple[Model, list[object]]:
    """One row that is computed, and what comes meanwhile."""
    model = Model()
    batcher = Batcher(model.predict, limits, lambda _rows: None)
    running = asyncio.create_task(batcher.run())
    tasks = [asyncio.create_task(batcher.ask(rows(1)))]
    while not model.batches:
        await asyncio.sleep(0)
    tasks += [asyncio.create_task(batcher.ask(one)) for one in asked]
    await asyncio.sleep(0)
    model.may.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    running.cancel()
    assert batcher.rows == 0
    return model, [one if isinstance(one, Exception) else one[:, 0].tolist() for one in found]


def test_what_waits_is_computed_together_and_each_gets_its_own() -> None:
    model, found = asyncio.run(ask_while_busy(Limits(), rows(2), rows(3, 4), rows(5)))
    assert model.batches == [[1], [2, 3, 4, 5]]
    assert found == [[2], [4], [6, 8], [10]]


def test_a_batch_has_no_more_rows_than_it_may() -> None:
    model, found = asyncio.run(
        ask_while_busy(Limits(batch_rows=2), rows(2), rows(3), rows(4), rows(5, 6, 7))
    )
    assert model.batches == [[1], [2, 3], [4], [5, 6, 7]]
    assert found == [[2], [4], [6], [8], [10, 12, 14]]


def test_a_full_queue_sends_away_who_comes_last() -> None:
    model, found = asyncio.run(ask_while_busy(Limits(queue_rows=3), rows(2), rows(3), rows(4)))
    assert model.batches == [[1], [2, 3]]
    assert found[:3] == [[2], [4], [6]]
    assert isinstance(found[3], QueueFull)


def test_a_batch_that_fails_fails_alone() -> None:
    model, found = asyncio.run(ask_while_busy(Limits(batch_rows=1), rows(-1), rows(3)))
    assert model.batches == [[1], [-1], [3]]
    assert isinstance(found[1], StorageError)
    assert found[2] == [6]


def test_what_nobody_waits_for_any_more_is_not_computed() -> None:
    async def abandoned() -> list[list[float]]:
        model = Model()
        batcher = Batcher(model.predict, Limits(), lambda _rows: None)
        running = asyncio.create_task(batcher.run())
        first = asyncio.create_task(batcher.ask(rows(1)))
        while not model.batches:
            await asyncio.sleep(0)
        gone, stays = (asyncio.create_task(batcher.ask(rows(n))) for n in (2, 3))
        await asyncio.sleep(0)
        gone.cancel()
        model.may.set()
        await asyncio.gather(first, stays)
        with pytest.raises(asyncio.CancelledError):
            await gone
        running.cancel()
        assert batcher.rows == 0
        return model.batches

    assert asyncio.run(abandoned()) == [[1], [3]]
