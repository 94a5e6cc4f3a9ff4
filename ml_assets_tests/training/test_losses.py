"""The loss of each task: values known by hand, weights, and what a ranking's queries share."""

import math

import pytest
import torch

from ml_assets.spec.training import Task
from ml_assets.training.losses import (
    distillation_losses,
    prediction_losses,
    row_losses,
    row_weights,
)
from ml_assets.training.models.families import predictions
from ml_assets.training.rows.batches import Tensors

TASKS = Task.__args__


def rows(label: list[float], starts: list[int] | None = None) -> Tensors:
    nothing = torch.zeros(len(label), 0)
    queries = None if starts is None else torch.tensor(starts)
    return Tensors(nothing, nothing.int(), torch.tensor(label), queries)


def logits(values: list[float]) -> torch.Tensor:
    """[n, 1 member, 1 output]."""
    return torch.tensor(values)[:, None, None].requires_grad_()


def mean_loss(found: torch.Tensor, of: Tensors, task: Task) -> torch.Tensor:
    weights = row_weights(of, task, positive_weight=1.0)
    return (row_losses(found, of, task) * weights).sum() / weights.sum()


def test_a_regression_pays_the_squared_error_of_each_member() -> None:
    two_members = torch.tensor([[[1.0], [3.0]], [[0.0], [0.0]]])
    assert row_losses(two_members, rows([1.0, -2.0]), "regression").tolist() == [2.0, 4.0]


def test_a_ranking_pays_the_cross_entropy_of_shares_and_softmax() -> None:
    two = rows([0.75, 0.25, 0.0, 1.0, 0.0], [0, 3, 5])
    scores = logits([1.0, 0.0, 2.0, 5.0, 5.0])
    total = math.log(math.e + 1 + math.e**2)
    by_hand = (0.75 * (total - 1) + 0.25 * total + math.log(2)) / 2
    assert mean_loss(scores, two, "ranking").item() == pytest.approx(by_hand)


def test_a_ranking_is_about_differences_within_a_query_only() -> None:
    two = rows([1.0, 0.0, 0.5, 0.5, 0.0], [0, 2, 5])
    scores = torch.tensor([1.0, 2.0, 3.0, 1.0, 0.0])[:, None, None]
    lifted = scores + torch.tensor([7.0, 7.0, -3.0, -3.0, -3.0])[:, None, None]
    assert torch.allclose(row_losses(scores, two, "ranking"), row_losses(lifted, two, "ranking"))


def test_queries_of_unequal_length_have_finite_gradients_that_sum_to_nothing() -> None:
    """The table of queries is padded: what stands in the empty places may not be felt."""
    uneven = rows([1.0, 0.25, 0.75, 0.0, 0.0, 0.0], [0, 1, 6])
    scores = logits([3.0, 1.0, 0.0, 2.0, 0.5, -1.0])
    mean_loss(scores, uneven, "ranking").backward()
    assert scores.grad is not None
    gradient = scores.grad[:, 0, 0]
    assert torch.isfinite(gradient).all()
    assert float(gradient[0]) == 0, "alone in its query, a row cannot be out of order"
    assert float(gradient[1:].sum()) == pytest.approx(0, abs=1e-6)


def test_a_ranking_is_best_where_the_softmax_is_the_shares() -> None:
    shares = [0.6, 0.3, 0.1]
    at_best = logits([math.log(share) for share in shares])
    mean_loss(at_best, rows(shares, [0, 3]), "ranking").backward()
    assert at_best.grad is not None
    assert at_best.grad.abs().max() < 1e-6


def test_what_a_row_weighs() -> None:
    some = rows([1.0, 0.0])
    assert row_weights(some, "binary", 3.0).tolist() == [3.0, 1.0]
    assert row_weights(some, "binary", 1.0).tolist() == [1.0, 1.0]
    assert row_weights(some, "multiclass", 1.0).tolist() == [1.0, 1.0]
    assert row_weights(some, "regression", 1.0).tolist() == [1.0, 1.0]
    shared = rows([0.25, 0.75], [0, 2])
    assert row_weights(shared, "ranking", 1.0).tolist() == [0.25, 0.75]


def test_a_class_weighs_what_its_place_says() -> None:
    some = rows([2, 0, 1])
    assert row_weights(some, "multiclass", class_weights=(1.0, 2.0, 9.0)).tolist() == [9, 1, 2]


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_a_focal_loss_counts_less_what_is_predicted_well(task: Task) -> None:
    some = rows([1.0, 0.0]) if task == "binary" else rows([1, 0])
    found = torch.tensor([[[1.0]], [[1.0]]])
    if task == "multiclass":
        found = torch.cat([torch.zeros_like(found), found], dim=2)
    p = 1 / (1 + math.exp(-1))
    by_hand = [(1 - p) ** 2 * -math.log(p), p**2 * -math.log(1 - p)]
    assert row_losses(found, some, task, 2.0).tolist() == pytest.approx(by_hand)
    assert torch.equal(row_losses(found, some, task, 0.0), row_losses(found, some, task))


@pytest.mark.parametrize("gamma", [0.1, 1.0, 5.0])
def test_a_focal_loss_has_finite_gradients_at_certainty(gamma: float) -> None:
    sure = logits([200.0, -200.0, 200.0, 0.0])
    row_losses(sure, rows([1.0, 0.0, 0.0, 1.0]), "binary", gamma).sum().backward()
    assert sure.grad is not None
    assert torch.isfinite(sure.grad).all()


@pytest.mark.parametrize("task", TASKS)
def test_validation_counts_a_lone_member_as_training_does(task: Task) -> None:
    draw = torch.Generator().manual_seed(0)
    found = torch.randn(6, 1, 3 if task == "multiclass" else 1, generator=draw)
    labels = {
        "binary": rows([1.0, 0.0, 0.0, 1.0, 1.0, 0.0]),
        "multiclass": rows([0, 1, 2, 0, 1, 2]),
        "regression": rows([0.5, -1.0, 2.0, 0.0, 0.1, 3.0]),
        "ranking": rows([1.0, 0.0, 0.5, 0.5, 0.0, 0.0], [0, 2, 6]),
        "language_model": rows([255.0, 12.0, 1.0, 255.0, 255.0, 90.0]),
    }[task]
    trained = row_losses(found, labels, task)
    validated = prediction_losses(predictions(found, task), labels, task)
    assert torch.allclose(trained.double(), validated, atol=1e-6)


def test_a_teacher_is_missed_by_the_divergence_of_softened_distributions() -> None:
    """T^2 sum p log(p / q), with p and q the softmax of logits over T; a mean over members."""
    student, teacher, heat = [[1.0, 0.0, -1.0], [0.0, 0.0, 0.0]], [2.0, 0.0, 1.0], 2.0

    def soft(values: list[float]) -> list[float]:
        powers = [math.exp(value / heat) for value in values]
        return [power / sum(powers) for power in powers]

    p = soft(teacher)
    by_hand = [
        heat**2 * sum(a * math.log(a / b) for a, b in zip(p, soft(member), strict=True))
        for member in student
    ]
    found = distillation_losses(torch.tensor([student]), torch.tensor([p]), "multiclass", heat)
    assert found.item() == pytest.approx(sum(by_hand) / 2, rel=1e-5)
    same = distillation_losses(torch.tensor([[teacher]]), torch.tensor([p]), "multiclass", heat)
    assert same.item() == pytest.approx(0, abs=1e-6)


def test_a_binary_label_is_taught_as_two_classes_are() -> None:
    one = torch.tensor([[[0.7]], [[-30.0]]])
    both = torch.cat([torch.zeros_like(one), one], dim=-1)
    p = torch.tensor([[0.3], [1.0]])
    binary = distillation_losses(one, p, "binary", 3.0)
    classes = distillation_losses(both, torch.cat([1 - p, p], dim=1), "multiclass", 3.0)
    assert torch.allclose(binary, classes, rtol=1e-5)


def test_its_gradient_at_high_temperature_is_that_of_matching_logits() -> None:
    """(z_i - v_i) / N for logits that sum to 0: Hinton et al. (2015), equation 4."""
    student = torch.tensor([[[1.0, -2.0, 1.0]]], requires_grad=True)
    teacher, heat = torch.tensor([[0.5, 0.5, -1.0]]), 1000.0
    p = torch.softmax(teacher / heat, dim=-1)
    distillation_losses(student, p, "multiclass", heat).sum().backward()
    assert student.grad is not None
    assert torch.allclose(student.grad[0], (student.detach()[0] - teacher) / 3, atol=2e-3)


def test_a_number_is_taught_by_the_squared_difference() -> None:
    two_members = torch.tensor([[[1.0], [3.0]]])
    taught = torch.tensor([[2.5]])
    found = distillation_losses(two_members, taught, "regression", 2.0)
    assert found.tolist() == [(1.5**2 + 0.5**2) / 2]
