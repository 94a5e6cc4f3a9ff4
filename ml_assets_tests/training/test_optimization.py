"""Optimizers and schedules by name: what decays, and how the learning rate goes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from ml_assets.spec.training import Mlp, OptimizerName, Schedule, TabM, TrainingSpec
from ml_assets.spec.training_program import CategoricalColumn, NumericColumn, Preprocessing
from ml_assets.training.models.families import build
from ml_assets.training.optimization import learning_rate, make_optimizer, parameters_by_decay

COLUMNS = Preprocessing(
    numeric=(NumericColumn(name="x", mean=0.0, std=1.0),),
    null_flags=(),
    categorical=(CategoricalColumn(name="c", vocabulary=("a", "b")),),
)


@pytest.mark.parametrize("spec", [TabM(family="tabm", width=8), Mlp(family="mlp", width=8)])
def test_weights_decay_but_not_embeddings_biases_and_adapters(spec: TabM | Mlp) -> None:
    network = build(spec, COLUMNS, "multiclass", ("a", "b", "c"))
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    decayed, free = ([names[id(p)] for p in group] for group in parameters_by_decay(network))
    output = "output" if isinstance(spec, TabM) else "output.weight"
    assert decayed == sorted(decayed, key=list(names.values()).index)
    assert set(decayed) == {"layers.0.weight", "layers.1.weight", output}
    assert sorted(decayed + free) == sorted(names.values())


def test_in_a_network_with_norms_and_odd_names_matrices_alone_decay() -> None:
    network = nn.Sequential()
    network.add_module("rebias", nn.Linear(3, 4))  # names say nothing
    network.add_module("norm", nn.LayerNorm((2, 4)))  # its weight has two dimensions
    network.add_module("embeddings_of", nn.Linear(4, 5, bias=False))
    network.add_module("words", nn.Embedding(3, 5))
    decayed, free = parameters_by_decay(network)
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    assert [names[id(p)] for p in decayed] == ["rebias.weight", "embeddings_of.weight"]
    assert len(free) == 4


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "nadam", "adafactor"])
def test_every_optimizer_decays_weights_and_only_those(optimizer: str) -> None:
    spec = TrainingSpec(
        optimizer=optimizer,  # pyright: ignore[reportArgumentType]
        strategy="replicate",
        weight_decay=0.5,
        learning_rate=0.1,
    )
    network = nn.Linear(2, 2)
    with torch.no_grad():
        network.weight.fill_(1.0)
        network.bias.fill_(1.0)
    made = make_optimizer(network, spec)
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    made.step()
    left = 1 - 0.1 * 0.5 * (1.9 if optimizer == "sgd" else 1)  # with Nesterov's momentum
    assert network.weight.flatten().tolist() == pytest.approx([left] * 4)
    assert network.bias.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("optimizer", ["adamw", "nadam"])
def test_betas_and_eps_are_those_of_the_spec(optimizer: OptimizerName) -> None:
    for changes, betas, eps in (
        ({"betas": (0.8, 0.95), "eps": 1e-5}, (0.8, 0.95), 1e-5),
        ({}, (0.9, 0.999), 1e-8),
    ):
        spec = TrainingSpec(optimizer=optimizer, **changes)
        made = make_optimizer(nn.Linear(2, 2), spec)
        assert (made.defaults["betas"], made.defaults["eps"]) == (betas, eps)


def test_sgd_is_nesterovs_with_the_momentum_of_the_spec() -> None:
    given_one = TrainingSpec(optimizer="sgd", momentum=0.5)
    for spec, momentum in [(given_one, 0.5), (TrainingSpec(optimizer="sgd"), 0.9)]:
        made = make_optimizer(nn.Linear(2, 2), spec)
        assert made.defaults["momentum"] == momentum
        assert made.defaults["nesterov"]


@given(
    schedule=st.sampled_from(["constant", "linear", "cosine"]),
    warmup=st.floats(0, 0.99),
    steps=st.integers(1, 500),
)
def test_a_rate_rises_along_a_line_then_never_rises_again(
    schedule: Schedule, warmup: float, steps: int
) -> None:
    spec = TrainingSpec(schedule=schedule, warmup=warmup, learning_rate=0.1)
    rates = [learning_rate(spec, step, steps) for step in range(steps)]
    warm = min(max(1, round(warmup * steps)), steps)
    whole = max(1, round(warmup * steps))
    assert rates[:warm] == pytest.approx([0.1 * (step + 1) / whole for step in range(warm)])
    falling = rates[warm:]
    assert all(0 < rate <= 0.1 * (1 + 1e-9) for rate in rates)
    assert falling == sorted(falling, reverse=True)
    assert rates == [learning_rate(spec, step, steps) for step in range(steps)], "of the step alone"


def test_schedules_are_what_their_names_say() -> None:
    def at(schedule: Schedule, step: int) -> float:
        spec = TrainingSpec(schedule=schedule, warmup=0.0, learning_rate=0.1)
        return learning_rate(spec, step, 101)

    assert [at("constant", step) for step in (1, 51, 100)] == [0.1] * 3
    assert [at("linear", step) for step in (1, 51, 100)] == pytest.approx([0.1, 0.05, 0.001])
    assert [at("cosine", step) for step in (1, 51)] == pytest.approx([0.1, 0.05])
    assert at("cosine", 100) < 1e-4
