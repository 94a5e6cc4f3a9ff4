"""A language model: what it says are probabilities; it trains, resumes and scores as others do."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ml_assets.spec.gpt import GPT_PRESETS, Gpt, parameter_count
from ml_assets.spec.training_program import Ref, Reports, SanityRequest, World
from ml_assets.training.model_folder import open_model
from ml_assets.training.models.gpt import GptNetwork, flops_per_token, model_flops_utilization
from ml_assets.training.rows.arrays import open_set
from ml_assets.training.rows.tokens import TokenArrays, split_arrays
from ml_assets.training.sanity.suite import admit, examine
from ml_assets.training.sanity.untrained import output_bias
from ml_assets.training.weights import load_predictor, samples
from ml_assets_tests.training.conftest import Attempt, Sessions
from ml_assets_tests.training.test_exactness import newest
from ml_assets_tests.training.texts import CONTEXT, MODEL, SPEC, text_set

pytest.importorskip("tokenizers", reason="the extra 'language' is not installed")
VOCABULARY = 70


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Ref:
    return text_set(tmp_path_factory.mktemp("texts"))


def network(spec: Gpt = MODEL) -> GptNetwork:
    torch.manual_seed(1)
    made = GptNetwork(spec, VOCABULARY)
    with torch.no_grad():
        for weight in made.parameters():
            weight.mul_(4)  # far from a constant
    return made


def nats(of: GptNetwork, windows: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return of(torch.zeros(len(windows), 0), windows, None)[:, 0, 0].double()


def test_what_it_says_of_the_next_token_adds_up_to_one_whatever_comes_later() -> None:
    made = network()
    window = torch.randint(0, VOCABULARY, (1, 12), dtype=torch.int32)
    before = window.clone()
    before[:, 6:] = -1
    each = before.repeat(VOCABULARY, 1)
    each[:, 6] = torch.arange(VOCABULARY)
    shares = (nats(made, before) - nats(made, each)).exp()
    assert float(shares.sum()) == pytest.approx(1, abs=1e-4)
    assert float(shares.max()) > 2 * float(shares.min())
    # tokens after the sixth are targets; that of the sixth is no other for them
    longer = each.clone()
    longer[:, 7:] = window[:, 7:]
    more = nats(made, longer) - nats(made, each)
    alone = longer.clone()
    alone[:, 7:] = torch.randint(0, VOCABULARY, (1, 5), dtype=torch.int32)
    assert not torch.allclose(more, nats(made, alone) - nats(made, each))


def test_a_network_that_sees_what_comes_says_no_probabilities(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = torch.nn.functional.scaled_dot_product_attention

    def uncovered(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_causal: bool
    ) -> torch.Tensor:
        assert is_causal
        return whole(query, key, value)

    monkeypatch.setattr("ml_assets.training.models.gpt.scaled_dot_product_attention", uncovered)
    with pytest.raises(AssertionError, match="comparison failed"):
        test_what_it_says_of_the_next_token_adds_up_to_one_whatever_comes_later()


def test_a_chunk_of_logits_at_a_time_changes_no_nat_and_no_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    windows = torch.randint(0, VOCABULARY, (6, 12), dtype=torch.int32)
    found = []
    for at_once in (1 << 23, 1):
        monkeypatch.setattr("ml_assets.training.models.gpt._LOGITS_AT_ONCE", at_once)
        made = network()
        said = made(torch.zeros(6, 0), windows, None)
        said.sum().backward()
        assert made.embedding.weight.grad is not None
        found.append((said.detach(), made.embedding.weight.grad))
    assert torch.allclose(found[0][0], found[1][0], rtol=1e-5)
    assert torch.allclose(found[0][1], found[1][1], rtol=1e-3, atol=1e-4)


def test_each_token_is_a_target_once_an_epoch_and_once_of_its_text(texts: Ref) -> None:
    folder, schema = open_set(texts)
    rows = split_arrays(folder, schema, "train")
    assert isinstance(rows, TokenArrays)
    (stream,) = rows._streams
    whole = rows.take_units(np.arange(rows.units)).categorical[:, 1:]
    assert whole[whole != -1].tolist() == stream.tokens[1:].tolist()
    own = rows.take(np.arange(len(rows)))
    targets = own.categorical[:, 1:]
    assert targets[targets != -1].tolist() == stream.tokens[1:].tolist()
    assert own.starts is not None and len(own.starts) == len(rows) + 1
    assert (own.categorical[own.starts[:-1], 0] == 0).all()
    assert own.label.sum() == len(stream.tokens) - 1
    assert stream.tokens.dtype == np.uint16
    assert isinstance(stream.tokens, np.memmap)
    assert own.categorical.shape[1] == CONTEXT + 1


@pytest.mark.parametrize("name", ["1m", "124m"])
def test_the_operations_of_a_preset_are_those_that_torch_counts(name: str) -> None:
    spec = Gpt.model_validate({"family": "gpt", "preset": name})
    vocabulary, context = (2048, 256) if name == "1m" else (50_257, 1024)
    with torch.device("meta"):
        made = GptNetwork(spec, vocabulary)
        windows = torch.zeros(1, context + 1, dtype=torch.int32)
        counter = FlopCounterMode(display=False)
        with counter:
            made(torch.zeros(1, 0), windows, None).sum().backward()
    assert sum(one.numel() for one in made.parameters()) == parameter_count(spec, vocabulary)
    words = 50_304 if name != "1m" else 2048
    again = 2 * words * spec.width * context  # the checkpoint's logits, a second time
    counted = counter.get_total_flops() - again
    assert counted == pytest.approx(flops_per_token(spec, vocabulary, context) * context, rel=0.05)


def test_a_preset_has_the_size_that_its_name_says() -> None:
    sizes = {"1m": 1.05e6, "124m": 124e6, "350m": 354e6, "1b": 1.01e9}
    assert sizes.keys() == GPT_PRESETS.keys()
    for name, size in sizes.items():
        spec = Gpt.model_validate({"family": "gpt", "preset": name})
        words = 2048 if name == "1m" else 50_257
        assert parameter_count(spec, words) == pytest.approx(size, rel=0.01)


def test_utilization_is_the_share_of_the_peak_that_the_model_needs() -> None:
    spec = Gpt.model_validate({"family": "gpt", "preset": "124m"})
    flops = flops_per_token(spec, 50_257, 1024)
    assert flops == 6 * (12 * 12 * 768**2 + 50_304 * 768) + 12 * 12 * 1024 * 768
    assert model_flops_utilization(500_000, flops, 989e12) == pytest.approx(0.4321, abs=1e-3)


@pytest.fixture(scope="module")
def alone(texts: Ref, tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    """A training in one process, with nothing in its way."""
    made = asked(Sessions(tmp_path_factory.mktemp("alone"), texts), "alone", procs=1)
    made.run_here()
    return made


@pytest.fixture(scope="module")
def whole(texts: Ref, tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    """The same in two."""
    made = asked(Sessions(tmp_path_factory.mktemp("whole"), texts), "whole")
    assert made.run() == 0
    return made


def asked(sessions: Sessions, name: str, **changes: Any) -> Attempt:
    return sessions.attempt(name, **{"spec": SPEC, "model": MODEL, **changes})


def test_it_learns_and_is_scored_text_by_text(alone: Attempt, texts: Ref) -> None:
    losses = alone.validation_losses()
    first, last = losses[min(losses)], losses[max(losses)]
    assert last < 0.7 * first
    assert first < math.log(300)
    folder, schema = open_set(texts)
    rows = split_arrays(folder, schema, "holdout")
    model = alone.result().model
    predict = load_predictor(Path(model.uri), open_model(model), 1)
    together = predict(rows.take(np.arange(len(rows))))
    one_by_one = [predict(rows.take(np.array([row]))) for row in range(len(rows))]
    assert together.shape == (len(rows), 1)
    assert np.allclose(together, np.concatenate(one_by_one), rtol=1e-5)
    windows = rows.take(np.arange(len(rows))).label.sum()
    assert together.sum() / windows == pytest.approx(last, rel=0.2)
    drawn = samples(Path(model.uri), open_model(model), rows)
    assert drawn == samples(Path(model.uri), open_model(model), rows)
    assert {len(row) for row in drawn} == {2 * CONTEXT + 2}


@pytest.mark.daemon
def test_killed_twice_it_comes_to_the_same_weights(
    texts: Ref, whole: Attempt, tmp_path: Path
) -> None:
    sessions, resume = Sessions(tmp_path, texts), None
    for number, step in ((1, 5), (2, 15)):
        killed = asked(sessions, "killed", number=number, resume=resume)
        killed.kill_after(step)
        assert not Path(killed.request.output.result).exists()
        resume = newest(Path(killed.request.output.checkpoints))
    last = asked(sessions, "killed", number=3, resume=resume)
    assert last.run() == 0
    assert last.weights() == whole.weights()


@pytest.mark.daemon
def test_one_process_comes_to_the_losses_of_two(alone: Attempt, whole: Attempt) -> None:
    one, two = alone.validation_losses(), whole.validation_losses()
    assert one.keys() == two.keys()
    assert len(one) >= 4
    assert max(abs(one[step] - two[step]) for step in one) < 1e-5


@pytest.mark.daemon
def test_begun_by_two_processes_it_goes_on_in_one_and_in_three(
    texts: Ref, whole: Attempt, tmp_path: Path
) -> None:
    sessions, resume = Sessions(tmp_path, texts), None
    for number, (procs, step) in enumerate([(2, 5), (1, 15)], start=1):
        killed = asked(sessions, "world", number=number, procs=procs, resume=resume)
        killed.kill_after(step)
        resume = newest(Path(killed.request.output.checkpoints))
    last = asked(sessions, "world", number=3, procs=3, resume=resume)
    assert last.run() == 0
    exact, found = whole.validation_losses(), last.validation_losses()
    assert max(exact) in found
    assert max(abs(found[step] - exact[step]) for step in found) < 1e-5


@pytest.mark.daemon
@pytest.mark.parametrize("strategy", ["shard", "replicate"])
def test_it_computes_in_bf16(texts: Ref, whole: Attempt, tmp_path: Path, strategy: str) -> None:
    lower = SPEC.model_copy(update={"precision": "bf16", "strategy": strategy})
    attempt = asked(Sessions(tmp_path, texts), strategy, spec=lower)
    assert attempt.run() == 0
    exact, rounded = whole.validation_losses(), attempt.validation_losses()
    assert rounded[max(rounded)] == pytest.approx(exact[max(exact)], rel=0.1)


def test_it_is_sane_before_it_is_trained_and_a_bias_of_nothing_is_named(
    texts: Ref, tmp_path: Path
) -> None:
    reports = Reports(events=str(tmp_path / "events"), result=str(tmp_path / "result"))
    subject = admit(
        SanityRequest(
            session="sane",
            attempt=1,
            model=MODEL,
            training=SPEC,
            data=texts,
            output=reports,
            world=World(),
        )
    )
    checks = examine(subject)
    names = ["loss_at_init", "output_bias", "no_batch_leak", "gradients", "overfits_one_batch"]
    assert [check.name for check in checks] == names
    assert [check for check in checks if check.outcome != "passed"] == []
    with torch.no_grad():
        subject.network.output_bias.zero_()
    assert output_bias(subject).outcome == "failed"
