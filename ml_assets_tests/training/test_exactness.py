"""Training is a pure function of spec, data, seed and step: kills and world sizes do not show."""

import hashlib
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ml_assets.spec.parallel import idle_share
from ml_assets.spec.training_program import Ref
from ml_assets.spec.training_program.events import Checkpoint, Failed, Warning
from ml_assets.store import block_order as blocks_module
from ml_assets.store.block_order import BlockOrder
from ml_assets.store.objects import file_digest
from ml_assets.store.row_order import permuted
from ml_assets.training.rows.arrays import SplitArrays, open_set
from ml_assets.training.rows.batches import Batches
from ml_assets_tests.training.conftest import SPEC, Attempt, Sessions, ranking_set


def newest(folder: Path) -> Ref:
    manifest = sorted(folder.glob("*/manifest.json"))[-1]
    return Ref(uri=str(manifest.parent), digest=file_digest(manifest))


def left_at(attempt: Attempt, step: int) -> Ref:
    """Of a session killed after a checkpoint no later one is there."""
    folder = attempt.folder / "checkpoints"
    for checkpoint in sorted(folder.iterdir()):
        if checkpoint.name > f"step-{step:06d}.a9":
            shutil.rmtree(checkpoint)
    return newest(folder)


@pytest.mark.parametrize("rows", [1, 2, 7, 1000, 4097])
def test_the_order_of_an_epoch_has_every_row_once(rows: int) -> None:
    order = permuted(np.arange(rows), rows, seed=3, epoch=1)
    assert sorted(order.tolist()) == list(range(rows))


def test_epochs_and_seeds_have_orders_of_their_own_and_huge_ones_need_no_array() -> None:
    places = np.arange(1000)
    first = permuted(places, 1000, seed=3, epoch=1)
    assert (first != permuted(places, 1000, seed=3, epoch=2)).any()
    assert (first != permuted(places, 1000, seed=4, epoch=1)).any()
    assert (first == permuted(places, 1000, seed=3, epoch=1)).all()
    assert len(set(permuted(places, 10**12, seed=3, epoch=1).tolist())) == 1000


@pytest.mark.parametrize(
    ("rows", "digest"), [(1000, "19635eb28712c1ec"), (3_000_000, "be1e5e11ccb1b389")]
)
def test_the_order_is_the_one_that_released_models_were_trained_in(rows: int, digest: str) -> None:
    """Made at once for an epoch, or for the places that are asked for."""
    order = permuted(np.arange(1000), rows, seed=3, epoch=1)
    assert hashlib.sha256(order.tobytes()).hexdigest()[:16] == digest


def test_an_order_of_blocks_is_the_same_made_at_once_or_place_by_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def order() -> NDArray[np.int64]:
        blocks = BlockOrder([700, 300], 64, 3, lanes=4, share=8)
        return np.concatenate([blocks.permuted(np.arange(n, n + 50), 3, 1) for n in range(950)])

    whole = order()
    monkeypatch.setattr(blocks_module, "AT_ONCE", 0)
    assert (order() == whole).all()


@pytest.mark.parametrize("world", [1, 2, 3, 5, 24])
def test_any_number_of_ranks_sees_every_row_of_an_epoch_once(data: Ref, world: int) -> None:
    folder, schema = open_set(data)
    arrays = SplitArrays(folder, schema, "train")
    batches = Batches(arrays, seed=1, batch_size=96, microbatches=12)
    seen: list[float] = []
    for step in range(batches.steps_per_epoch):
        for rank in range(world):
            rows, _, counted = batches.share(step, rank, world)
            seen += rows.numeric[:counted, 0].tolist()
    everything = arrays.take(np.arange(len(arrays))).numeric[:, 0].tolist()
    assert sorted(seen) == sorted(everything)


@pytest.mark.parametrize("world", [2, 3, 5, 24])
def test_a_row_is_dropped_out_alike_in_any_world(data: Ref, world: int) -> None:
    """The mask that a row gets at a step, layer by layer, is not of the rank that has the row."""
    folder, schema = open_set(data)
    batches = Batches(SplitArrays(folder, schema, "train"), seed=1, batch_size=96, microbatches=12)

    def masks(step: int, ranks: int) -> dict[float, list[float]]:
        found: dict[float, list[float]] = {}
        for rank in range(ranks):
            rows, drawn, counted = batches.share(step, rank, ranks)
            both = torch.cat([drawn.draw(layer, 16, 0.5)[:, 0] for layer in (0, 1)], dim=1)
            found |= dict(zip(rows.numeric[:counted, 0].tolist(), both.tolist(), strict=False))
        return found

    last = batches.steps_per_epoch - 1
    alone = [masks(step, 1) for step in (0, 1, last)]
    assert [masks(step, world) for step in (0, 1, last)] == alone
    assert len(alone[0]) == 96
    assert len({tuple(mask) for mask in alone[0].values()}) > 90, "each row has a mask of its own"


def test_the_share_lost_to_padding_is_told() -> None:
    assert idle_share(24, 3) == 0
    assert idle_share(24, 5) == pytest.approx(1 - 24 / 25)


@pytest.mark.daemon
def test_neither_replicas_nor_checkpoints_by_the_clock_change_a_bit(
    sessions: Sessions, whole: Attempt
) -> None:
    """One checkpoint after each step, of that step on all ranks."""
    changes = {"strategy": "replicate", "checkpoint_minutes": 1e-6, "keep_last": 100}
    attempt = sessions.attempt("clocked", spec=SPEC.model_copy(update=changes))
    assert attempt.run() == 0
    steps = [event.step for event in attempt.events() if isinstance(event, Checkpoint)]
    assert steps == list(range(1, attempt.result().step + 1))
    assert attempt.weights() == whole.weights()


@pytest.mark.daemon
def test_one_process_gives_the_losses_of_two_to_1e_5(sessions: Sessions, whole: Attempt) -> None:
    alone = sessions.attempt("alone", procs=1)
    alone.run_here()
    one, two = alone.validation_losses(), whole.validation_losses()
    assert one.keys() == two.keys()
    assert max(abs(one[step] - two[step]) for step in one) < 1e-5


@pytest.mark.daemon
def test_two_processes_rank_as_one_does(sessions: Sessions, tmp_path: Path) -> None:
    searches = ranking_set(tmp_path / "shards")
    one = sessions.attempt("one", procs=1, data=searches)
    two = sessions.attempt("two", procs=2, data=searches)
    one.run_here()
    assert two.run() == 0
    alone, shared = one.validation_losses(), two.validation_losses()
    assert alone.keys() == shared.keys()
    assert max(abs(alone[step] - shared[step]) for step in alone) < 1e-5


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, data: Ref) -> Path:
    """What a training leaves that was killed after its twentieth step: whole checkpoints."""
    first = Sessions(tmp_path_factory.mktemp("killed"), data).attempt("killed")
    first.kill_after(20)
    assert not Path(first.request.output.result).exists()
    return first.folder


def test_a_killed_training_resumes_to_the_same_bits(
    sessions: Sessions, whole: Attempt, killed: Path
) -> None:
    shutil.copytree(killed, sessions.root / "killed")
    checkpoint = newest(sessions.root / "killed" / "checkpoints")
    again = sessions.attempt("killed", number=2, resume=checkpoint)
    assert again.run() == 0
    assert again.weights() == whole.weights()
    assert again.result().best_step == whole.result().best_step


@pytest.mark.daemon
def test_an_order_of_blocks_and_other_betas_resume_to_the_same_bits(sessions: Sessions) -> None:
    blocks = {"order": "blocks", "block_rows": 16, "block_window": 3, "keep_last": 100}
    spec = SPEC.model_copy(update={**blocks, "betas": (0.8, 0.95), "eps": 1e-5})
    whole = sessions.attempt("blocks", procs=1, spec=spec)
    assert whole.run() == 0
    weights = whole.weights()
    resume = left_at(whole, 5)
    again = sessions.attempt("blocks", number=2, procs=1, spec=spec, resume=resume)
    assert again.run() == 0
    assert min(again.validation_losses()) == 10
    assert again.weights() == weights


@pytest.mark.daemon
def test_a_notice_saves_one_step_on_all_ranks_and_exits_75(
    sessions: Sessions, whole: Attempt
) -> None:
    first = sessions.attempt("notice")
    process = first.start()
    first.wait_for(5)
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(60)
    failed = [event for event in first.events() if isinstance(event, Failed)]
    assert {event.exit_code for event in failed} == {75}
    assert f"step-{failed[0].step:06d}" in newest(first.folder / "checkpoints").uri
    assert all(step % SPEC.evaluate_every == 0 for step in first.validation_losses())
    again = sessions.attempt("notice", number=2, resume=newest(first.folder / "checkpoints"))
    assert again.run() == 0
    assert again.weights() == whole.weights()


@pytest.mark.daemon
def test_a_damaged_checkpoint_is_passed_by_aloud(
    sessions: Sessions, whole: Attempt, killed: Path
) -> None:
    shutil.copytree(killed, sessions.root / "damaged")
    checkpoint = newest(sessions.root / "damaged" / "checkpoints")
    data_file = sorted(Path(checkpoint.uri).glob("*.distcp"))[0]
    content = bytearray(data_file.read_bytes())
    content[len(content) // 2] ^= 1
    data_file.write_bytes(bytes(content))
    again = sessions.attempt("damaged", number=2, resume=checkpoint)
    assert again.run() == 0
    warnings = [event.message for event in again.events() if isinstance(event, Warning)]
    assert any("is damaged" in message and "before it is used" in message for message in warnings)
    assert again.weights() == whole.weights()


def test_retention_keeps_the_newest_and_the_best(whole: Attempt) -> None:
    kept = sorted(p.parent.name for p in (whole.folder / "checkpoints").glob("*/manifest.json"))
    best = f"step-{whole.result().best_step:06d}.a1"
    assert best in kept
    assert len(kept) <= SPEC.keep_last + SPEC.keep_best
    assert f"step-{whole.result().step:06d}.a1" in kept


def test_a_plain_model_says_nothing_of_calibration(whole: Attempt) -> None:
    assert b"calibration" not in (Path(whole.result().model.uri) / "model.json").read_bytes()
