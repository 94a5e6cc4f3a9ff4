"""A model that no longer answers says so at once; one that hangs is ended."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from ml_assets.errors import MlAssetsError
from ml_assets.extras.serving import served_release
from ml_assets.extras.serving.batching import Batcher, Limits
from ml_assets.extras.serving.encoding import Encoded
from ml_assets.extras.serving.served_release import ModelHangs, ServedModel, WarmModel
from ml_assets_tests.worlds.processes import below


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


def test_a_process_that_hangs_while_it_loads_is_given_up_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hangs.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(served_release, "MODULE", "hangs")
    monkeypatch.setattr(served_release, "_END_SECONDS", 0.2)
    row = np.zeros((1, 1), np.float32), np.zeros((1, 0), np.int32)
    monkeypatch.setattr(served_release, "encode_rows", lambda *_: row)
    ref = SimpleNamespace(uri=str(tmp_path), digest="b" * 64)
    release: Any = SimpleNamespace(model=ref, manifest=SimpleNamespace(preprocessing=None))

    async def tried() -> None:
        warm = WarmModel(release, 1, lambda _: None)
        batcher = Batcher(warm.predict, Limits(), lambda _: None)
        served = cast(Any, ServedModel)(release, None, warm, batcher, None)
        with pytest.raises(ModelHangs, match="said nothing for 1 s: it hangs"):
            await served.replay(SimpleNamespace(rows=None), 1.0)
        assert below(os.getpid(), "hangs")
        await served.close()

    asyncio.run(asyncio.wait_for(tried(), 60))
    assert not below(os.getpid(), "hangs")
