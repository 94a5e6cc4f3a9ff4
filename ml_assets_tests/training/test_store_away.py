"""A store of checkpoints that is away for a while costs a training time, and not its end."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ml_assets.errors import StoreAway, StoreRefuses
from ml_assets.spec.training import LightGbm
from ml_assets.spec.training_program import File, Ref, TrainRequest
from ml_assets.store import retries
from ml_assets.store.checkpoint_store import whole_checkpoints
from ml_assets.store.local_checkpoints import LocalCheckpoints
from ml_assets.training.boosting.engines import engine_of
from ml_assets.training.boosting.train import Grower, Speed
from ml_assets.training.checkpoints.save import Checkpoints
from ml_assets.training.checkpoints.whole_checkpoints import CheckpointFiles
from ml_assets.training.distributed.ranks import Ranks, join, leave
from ml_assets.training.events import EventWriter
from ml_assets.training.models.families import build
from ml_assets.training.models.network import Network
from ml_assets.training.optimization import make_optimizer
from ml_assets.training.rows.arrays import open_set
from ml_assets.training.stop import NotSaved
from ml_assets.training.trainer_state import TrainerState
from ml_assets_tests.training.conftest import MODEL, SPEC, Sessions
from ml_assets_tests.training.test_exactness import newest


class Away(LocalCheckpoints):
    """A folder that answers only after it was asked in vain for a while."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.failing = self.failing_puts = 0
        self.error: type[StoreAway] = StoreAway
        self.put_error: type[StoreAway] = StoreAway
        self.fetched: list[str] = []

    def claims(self) -> dict[int, bytes]:
        self._answer()
        return super().claims()

    def fetch(self, name: str, files: Iterable[File]) -> Path:
        self._answer()
        wanted = tuple(files)
        self.fetched = [file.path for file in wanted]
        return super().fetch(name, wanted)

    def put(self, name: str, files: Sequence[str]) -> None:
        self._answer()
        if self.failing_puts:
            self.failing_puts -= 1
            raise self.put_error("it is away")

    def _answer(self) -> None:
        if self.failing:
            self.failing -= 1
            raise self.error("it is away")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is asked again soon."""
    monkeypatch.setattr(retries, "_FIRST_WAIT", 0.01)


@pytest.fixture
def alone() -> Iterator[Ranks]:
    try:
        yield join()
    finally:
        leave()


def files_of(request: TrainRequest) -> tuple[CheckpointFiles, Away]:
    events = EventWriter(Path(request.output.events), request.session, request.attempt, 0)
    files = CheckpointFiles(request, events, world=1)
    files.store = store = Away(Path(request.output.checkpoints))
    return files, store


class Saving:
    """A network that is saved at steps; each is the best so far, unless its loss says otherwise."""

    def __init__(self, sessions: Sessions, data: Ref, ranks: Ranks, number: int = 1) -> None:
        _, schema = open_set(data)
        attempt = sessions.attempt("saving", number=number, procs=1)
        resume = newest(attempt.folder / "checkpoints") if number > 1 else None
        request = attempt.request.model_copy(update={"resume": resume})
        self.files, self.store = files_of(request)
        self.network: Network = build(MODEL, schema.preprocessing, schema.task, schema.classes)
        self.optimizer = make_optimizer(self.network, SPEC)
        self.checkpoints = Checkpoints(self.files, ranks, lambda: None)
        self.state = TrainerState()

    def save(self, step: int, loss: float | None = None) -> None:
        loss = loss or 1 / step
        at = self.state.model_copy(update={"step": step})
        self.state = at.judged(loss, self.files.name(step), 1)
        self.checkpoints.save(self.network, self.optimizer, self.state, {"validation_loss": loss})

    def steps(self) -> list[int]:
        return [found.manifest.step for found in whole_checkpoints(self.store, "session")]


def test_the_last_save_is_made_again_once_the_store_answers(
    sessions: Sessions, data: Ref, alone: Ranks
) -> None:
    saving = Saving(sessions, data, alone)
    assert saving.checkpoints.resume(saving.network, saving.optimizer) is None
    saving.save(1)
    saving.checkpoints.finish()
    saving.store.failing = 5  # two saves find it away, each asks to draft, and to clear away
    saving.save(2)
    saving.checkpoints.close()
    assert saving.store.failing == 0
    assert saving.steps() == [1, 2]


@pytest.mark.parametrize("error", [StoreRefuses, OSError])
def test_what_waiting_does_not_mend_ends_the_training_at_once(
    sessions: Sessions, data: Ref, alone: Ranks, error: type[StoreAway]
) -> None:
    saving = Saving(sessions, data, alone)
    saving.store.error, saving.store.failing = error, 1
    saving.save(1)
    with pytest.raises(NotSaved):
        saving.checkpoints.close()
    assert saving.steps() == []


def test_the_best_one_that_failed_is_saved_before_the_next_one(
    sessions: Sessions, data: Ref, alone: Ranks
) -> None:
    saving = Saving(sessions, data, alone)
    best = saved_weights(saving.network)
    saving.store.failing = 2  # it is away for the draft, and to clear away
    saving.save(1, loss=0.1)
    saving.checkpoints.finish()
    assert saving.steps() == []
    with torch.no_grad():
        for parameter in saving.network.parameters():
            parameter.zero_()
    saving.save(2, loss=0.2)
    saving.checkpoints.close()
    assert saving.steps() == [1, 2]
    assert next(saving.checkpoints.load_bests(saving.network, saving.optimizer, 1)).step == 1
    assert saved_weights(saving.network) == best  # those of its own step, not of the next one


def test_no_checkpoint_counts_on_one_that_is_not_there(
    sessions: Sessions, data: Ref, alone: Ranks
) -> None:
    saving = Saving(sessions, data, alone)
    saving.save(1, loss=0.3)
    saving.checkpoints.finish()
    saving.store.error, saving.store.failing = StoreRefuses, 4
    saving.save(2, loss=0.1)
    with pytest.raises(NotSaved, match="step 2"):
        saving.save(3, loss=0.2)
    assert saving.steps() == [1]  # the next attempt trains step 2 anew


def test_one_that_failed_and_is_not_needed_is_not_saved_again(
    sessions: Sessions, data: Ref, alone: Ranks
) -> None:
    saving = Saving(sessions, data, alone)
    saving.store.failing = 2
    saving.save(1, loss=0.2)
    saving.save(2, loss=0.1)
    saving.checkpoints.close()
    assert saving.steps() == [2]


def saved_weights(network: Network) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in network.state_dict().items()}


@pytest.mark.parametrize(("refusals", "steps"), [(1, [1, 2, 3]), (2, [])])
def test_the_best_trees_that_were_not_saved_are_saved_before_the_next_ones(
    sessions: Sessions, data: Ref, refusals: int, steps: list[int]
) -> None:
    model = LightGbm(family="lightgbm", rounds=3, num_leaves=3)
    spec = SPEC.model_copy(update={"evaluate_every": 1})
    request = sessions.attempt("trees", procs=1, model=model, spec=spec).request
    files, store = files_of(request)
    notice: Any = SimpleNamespace(given=False)
    grower = Grower(request, model, engine_of(model), files.events, notice)
    grower.files, grower.speed = files, Speed(1, 0)
    store.failing_puts, store.put_error = refusals, StoreRefuses
    for rounds, loss in ((1, 0.1), (2, 0.2), (3, 0.3)):
        try:
            grower.after_round(
                rounds,
                lambda loss=loss: {"validation_loss": loss, "train_loss": loss},
                lambda: b"tree",
            )
        except NotSaved as error:
            assert error.step == 1
            break
    assert [found.manifest.step for found in whole_checkpoints(store, "session")] == steps


def test_the_last_save_of_trees_is_made_again_too(sessions: Sessions, data: Ref) -> None:
    model = LightGbm(family="lightgbm", rounds=2, num_leaves=3)
    request = sessions.attempt("trees", procs=1, model=model).request
    files, store = files_of(request)
    notice: Any = SimpleNamespace(given=False)
    grower = Grower(request, model, engine_of(model), files.events, notice)
    grower.files = files
    store.failing_puts = 1  # one save is due, the last
    assert grower.grow(*open_set(data)) == "rounds"
    assert [found.manifest.step for found in whole_checkpoints(store, "session")] == [2]


def test_resuming_and_choosing_the_best_wait_for_the_store_and_leave_bf16_weights_there(
    sessions: Sessions, data: Ref, alone: Ranks
) -> None:
    first = Saving(sessions, data, alone)
    first.save(1)
    first.checkpoints.close()
    again = Saving(sessions, data, alone, number=2)
    again.store.failing = 2
    state = again.checkpoints.resume(again.network, again.optimizer)
    assert state is not None and state.step == 1
    for failing in (1, 2, 3):  # it goes away before the claim is read, and in mid-fetch
        again.store.failing = failing
        assert next(again.checkpoints.load_bests(again.network, again.optimizer, 1)).step == 1
    (found,) = whole_checkpoints(again.store, "session")
    left = {file.path for file in found.manifest.files} - set(again.store.fetched)
    assert left == {found.manifest.bf16_weights} != {None}
