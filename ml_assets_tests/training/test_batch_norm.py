"""Batch norm: of logical microbatches, with running statistics that are the same on all ranks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from ml_assets.spec.ensemble import Distill, Ensemble
from ml_assets.spec.network_code import NetworkCode
from ml_assets.spec.training import TrainingSpec
from ml_assets.spec.training_program import Ref
from ml_assets.training.distributed.blocks import recompute
from ml_assets.training.distributed.ranks import join, leave
from ml_assets.training.models.batch_norm import (
    RunningStatistics,
    microbatches_told,
    norms_of,
    replace_batch_norm,
)
from ml_assets.training.models.families import code_of
from ml_assets.training.models.layers import Masks
from ml_assets.training.models.network import Network
from ml_assets.training.rows.arrays import SplitArrays, open_set
from ml_assets.training.sanity.suite import admit
from ml_assets.training.sanity.untrained import no_batch_leak
from ml_assets.training.stop import TeamCodeFailed
from ml_assets.training.telemetry import Stopwatch
from ml_assets.training.weights import load_predictor
from ml_assets_tests.training.conftest import SPEC, Attempt, Sessions
from ml_assets_tests.training.networks import MODEL, NORMED, code
from ml_assets_tests.training.test_diagnosis import planted
from ml_assets_tests.training.test_ensemble import manifest_of
from ml_assets_tests.training.test_exactness import left_at, newest
from ml_assets_tests.training.test_team_network import sanity_request

SMALL = SPEC.model_copy(
    update={"epochs": 2, "keep_last": 100, "betas": (0.85, 0.98), "eps": 1e-5}  # killed with these
)
"""11 steps an epoch, the last one of 40 rows: microbatches of 8 rows."""


def masks(*rows: int) -> Masks:
    return Masks((0,) * len(rows), rows)


def passed(network: nn.Module, x: torch.Tensor, *rows: int) -> torch.Tensor:
    """A pass that trains on microbatches of so many rows; without any, one that scores."""
    with microbatches_told(norms_of(network), masks(*rows) if rows else None):
        return network(x)


def moved(network: nn.Module, x: torch.Tensor, *rows: int) -> None:
    """A step on these rows, in a process alone."""
    statistics = RunningStatistics(network)
    statistics.begin()
    passed(network, x, *rows)
    statistics.add(counted=True)
    join()
    statistics.move(Stopwatch())
    leave()


def both(**fields: Any) -> tuple[nn.BatchNorm2d, nn.Sequential]:
    """Torch's own, and ours of the same."""
    network = nn.Sequential(nn.BatchNorm2d(3, **fields))
    replace_batch_norm(network)
    return nn.BatchNorm2d(3, **fields), network


def images(count: int, seed: int = 0) -> torch.Tensor:
    """Not centred, so that a variance that is a difference of squares would show."""
    return torch.randn(count, 3, 4, 5, generator=torch.Generator().manual_seed(seed)) + 20.0


@pytest.mark.parametrize("fields", [{}, {"affine": False}, {"bias": False}])
def test_each_microbatch_is_normalized_as_torch_would_alone(fields: dict[str, Any]) -> None:
    torchs, ours = both(**fields)
    x = images(25)
    alone = torch.cat([torchs(part) for part in x.split((8, 8, 5, 4))])
    assert torch.equal(passed(ours, x, 8, 8, 5, 4), alone)


@pytest.mark.parametrize("momentum", [0.1, 0.5, None])
def test_the_running_statistics_are_those_of_a_pass_over_all_rows_of_the_step(
    momentum: float | None,
) -> None:
    torchs, ours = both(momentum=momentum)
    for step in range(3):
        torchs(images(25, step))
        moved(ours, images(25, step), 8, 8, 8, 1)
    found, expected = ours[0].state_dict(), torchs.state_dict()
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-6, atol=0)
    assert int(found["num_batches_tracked"]) == 3
    x = images(25, 9)
    torch.testing.assert_close(passed(ours.eval(), x), torchs.eval()(x))


def test_a_pass_moves_nothing_and_one_that_scores_keeps_rows_apart() -> None:
    ours = both()[1]
    before = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    passed(ours, images(8), 4, 4)
    assert all(torch.equal(tensor, before[name]) for name, tensor in ours.state_dict().items())
    x = images(8)
    assert torch.equal(passed(ours, x)[:1], passed(ours, x[:1])), "in train() too"


def test_a_row_alone_in_its_microbatch_is_normalized_as_it_is_scored() -> None:
    network = nn.Sequential(nn.BatchNorm1d(3))
    replace_batch_norm(network)
    x = images(9)[:, :, 0, 0].requires_grad_()
    moved(network, x, 4, 4, 1)
    found = passed(network, x, 4, 4, 1)
    assert torch.equal(found[8:], passed(network, x)[8:])
    found[8:].sum().backward()
    assert x.grad is not None and bool((x.grad[8:] != 0).all()), "it learns"
    before = network.state_dict()["0.running_var"].clone()
    moved(network, x[:1], 1)
    assert torch.equal(network.state_dict()["0.running_var"], before), "one value moves nothing"


def test_rows_may_come_with_several_entries_each_and_nothing_else() -> None:
    network = nn.Sequential(nn.BatchNorm1d(3))
    replace_batch_norm(network)
    x = torch.randn(12, 2, 3)
    flat = passed(network, x.flatten(0, 1), 4, 8)
    apart = torch.cat([passed(network, part.flatten(0, 1), len(part)) for part in x.split((4, 8))])
    assert torch.equal(flat, apart)
    with pytest.raises(TeamCodeFailed, match=r"BatchNorm1d got \(7, 3\) in a pass of 12 rows"):
        passed(network, torch.randn(7, 3), 4, 8)


@pytest.mark.parametrize("mode", ["none", "block", "selective"])
def test_a_block_that_is_computed_again_is_seen_once(mode: Any) -> None:
    class Deep(Network):
        def __init__(self) -> None:
            super().__init__()
            layers = [nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU()]
            self.blocks = nn.ModuleList(nn.Sequential(*layers) for _ in range(2))  # one, twice

        def forward(self, x: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
            for block in self.blocks:
                x = block(x)
            return x

        def units(self) -> list[nn.Module]:
            return list(self.blocks)

    torch.manual_seed(0)
    network = Deep()
    replace_batch_norm(network)
    recompute(network, mode)
    found = passed(network, torch.randn(24, 8), 8, 16)
    found.square().sum().backward()
    (norm,) = norms_of(network)
    assert norm.seen is not None
    assert float(norm.seen[0]) == 48, "it is in both blocks"


@pytest.mark.parametrize(
    ("layer", "told"),
    [
        ("nn.BatchNorm1d(channels, track_running_stats=False)", "row's score would depend on the"),
        ("nn.SyncBatchNorm(channels)", "change with the number of processes. Take nn.BatchNorm1d"),
    ],
)
def test_one_without_statistics_of_a_microbatch_is_refused_by_name(
    sessions: Sessions, tmp_path: Path, layer: str, told: str
) -> None:
    own = code(tmp_path / "own", network=NORMED.replace("nn.BatchNorm1d(channels)", layer))
    with pytest.raises(TeamCodeFailed, match=f"flat is an nn.*{told}"):
        asked(sessions, "refused", own, procs=1).run_here()


@pytest.mark.parametrize(("microbatches", "outcome"), [(4, "passed"), (48, "warned")])
def test_the_rows_that_it_takes_its_statistics_of_are_told(
    data: Ref, own: NetworkCode, tmp_path: Path, microbatches: int, outcome: str
) -> None:
    request = sanity_request(data, own, tmp_path)
    training = spec(microbatches=microbatches)
    found = no_batch_leak(admit(request.model_copy(update={"training": training})))
    assert found.outcome == outcome, found.reason
    rows = 96 // microbatches
    assert f"In training, its 2 batch norms use the statistics of one microbatch: {rows} row" in (
        found.reason
    )


@pytest.mark.daemon
def test_lazy_ones_are_ours_too(sessions: Sessions, tmp_path: Path, normed: Attempt) -> None:
    lazy = NORMED.replace("nn.BatchNorm1d(channels)", "nn.LazyBatchNorm1d()")
    attempt = asked(sessions, "lazy", code(tmp_path / "own", network=lazy), procs=1)
    attempt.run_here()
    assert difference(attempt.validation_losses(), normed.validation_losses()) < 1e-5


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> NetworkCode:
    return code(tmp_path_factory.mktemp("pipeline"), network=NORMED)


@pytest.fixture(scope="module")
def normed(tmp_path_factory: pytest.TempPathFactory, data: Ref, own: NetworkCode) -> Attempt:
    """A training on two processes, sharded, with nothing in its way."""
    attempt = asked(Sessions(tmp_path_factory.mktemp("normed"), data), "whole", own)
    assert attempt.run() == 0, attempt.events()[-1]
    return attempt


def asked(sessions: Sessions, name: str, own: NetworkCode, **more: Any) -> Attempt:
    return sessions.attempt(name, **{"model": MODEL, "code": own, "spec": SMALL, **more})


def spec(**changes: Any) -> TrainingSpec:
    return TrainingSpec(**{**SMALL.model_dump(), **changes})


def weights(attempt: Attempt) -> dict[str, torch.Tensor]:
    return load_file(Path(attempt.request.output.model) / "weights.safetensors")


def difference(one: dict[int, float], other: dict[int, float]) -> float:
    assert set(one) <= set(other)
    return max(abs(one[step] - other[step]) for step in one)


def test_the_export_has_its_statistics_and_scores_each_row_by_itself(
    normed: Attempt, own: NetworkCode
) -> None:
    found = weights(normed)
    assert int(found["network.norm.num_batches_tracked"]) == normed.result().best_step
    assert float(found["network.norm.running_mean"].abs().max()) > 0.01
    folder, schema = open_set(normed.request.data)
    rows = SplitArrays(folder, schema, "validation")
    model = Path(normed.result().model.uri)
    predict = load_predictor(model, manifest_of(normed), 1, code_of(normed.request))
    whole = predict(rows.whole())
    alone = np.concatenate([predict(rows.take(np.array([n]))) for n in range(20)])
    assert np.abs(whole[:20] - alone).max() < 1e-6


def test_replicas_have_its_bits_and_one_process_its_losses(
    sessions: Sessions, normed: Attempt, own: NetworkCode
) -> None:
    replicas = asked(sessions, "replicas", own, spec=spec(strategy="replicate"))
    assert replicas.run() == 0
    assert replicas.weights() == normed.weights()
    alone = asked(sessions, "alone", own, procs=1)
    alone.run_here()
    assert difference(alone.validation_losses(), normed.validation_losses()) < 1e-5
    one, two = weights(alone), weights(normed)
    assert max(float((one[name] - two[name]).abs().max()) for name in one) < 1e-5


@pytest.mark.daemon
def test_statistics_of_the_own_rank_alone_are_seen(
    sessions: Sessions, normed: Attempt, own: NetworkCode
) -> None:
    faulty = asked(sessions, "faulty", own, spec=spec(strategy="replicate"))
    assert planted(faulty, "Alone") == 0
    assert difference(faulty.validation_losses(), normed.validation_losses()) > 1e-3
    assert faulty.weights() != normed.weights()


@pytest.mark.daemon
def test_a_killed_training_resumes_to_the_same_bits(
    sessions: Sessions, normed: Attempt, own: NetworkCode
) -> None:
    first = asked(sessions, "killed", own)
    first.kill_after(5)
    resume = newest(Path(first.request.output.checkpoints))
    second = asked(sessions, "killed", own, number=2, resume=resume)
    assert second.run() == 0
    assert second.weights() == normed.weights()


@pytest.mark.daemon
def test_other_numbers_of_processes_go_on_to_the_same_losses(
    sessions: Sessions, normed: Attempt, own: NetworkCode
) -> None:
    """Three do not divide the five microbatches of the last step of an epoch: one is idle."""
    whole = asked(sessions, "s", own)
    assert whole.run() == 0
    three = asked(sessions, "s", own, number=2, procs=3, resume=left_at(whole, 5))
    assert three.run() == 0
    one = asked(sessions, "s", own, number=3, procs=1, resume=left_at(three, 15))
    assert one.run() == 0
    losses = three.validation_losses() | one.validation_losses()
    assert min(losses) == 10
    assert difference(losses, normed.validation_losses()) < 1e-5


@pytest.mark.daemon
@pytest.mark.parametrize(
    ("changes", "near"),
    [
        ({"precision": "bf16"}, 0.02),
        ({"precision": "bf16", "strategy": "replicate"}, 0.02),
        ({"gradient_precision": "bf16", "strategy": "replicate"}, 0.02),
        ({"communication_hook": "powersgd", "strategy": "replicate"}, 0.2),
        ({"batch_size": 24, "microbatches": 3, "accumulate": 4}, 1e-5),
        ({"precision": "fp16"}, 0.02),
        ({"prefetch": True}, 0.0),
    ],
)
def test_it_goes_with_what_else_a_training_asks_for(
    sessions: Sessions, normed: Attempt, own: NetworkCode, changes: dict[str, Any], near: float
) -> None:
    attempt = asked(sessions, "more", own, spec=spec(**changes))
    assert attempt.run() == 0, attempt.events()[-1]
    assert difference(attempt.validation_losses(), normed.validation_losses()) <= near
    assert {tensor.dtype for tensor in weights(attempt).values()} == {torch.float32, torch.int64}


@pytest.mark.daemon
def test_an_ensemble_has_statistics_of_each_and_teaches_with_them(
    sessions: Sessions, own: NetworkCode
) -> None:
    three = asked(sessions, "three", own, spec=spec(ensemble=Ensemble(checkpoints=3)))
    assert three.run() == 0
    found = weights(three)
    counts = {int(found[f"{n}.network.norm.num_batches_tracked"]) for n in range(3)}
    assert len(counts) == 3
    taught = spec(distill=Distill(teacher="release", weight=5.0))
    request = {"spec": taught, "procs": 1}
    pupil = asked(sessions, "pupil", own, **request)
    update = {"teacher": three.result().model}
    Attempt(pupil.folder, pupil.request.model_copy(update=update)).run_here()
    plain = asked(sessions, "plain", own, procs=1)
    plain.run_here()
    assert difference(pupil.validation_losses(), plain.validation_losses()) > 1e-3
    after = weights(three)
    assert all(torch.equal(found[name], after[name]) for name in found), "it is only asked"
