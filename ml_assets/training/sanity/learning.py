"""Checks that a network learns: a few rows by heart, and more from its inputs than from zeros."""

import itertools
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.optim import Optimizer

from ml_assets.errors import counted
from ml_assets.spec.sanity import SanityCheck
from ml_assets.spec.training import OptimizerName
from ml_assets.training.losses import prediction_losses
from ml_assets.training.models.families import predictions
from ml_assets.training.models.network import Network
from ml_assets.training.optimization import make_optimizer
from ml_assets.training.rows.batches import Tensors
from ml_assets.training.sanity.subject import Subject, one_microbatch, verdict

_RATES: dict[OptimizerName, float] = {"adamw": 0.01, "nadam": 0.01, "adafactor": 0.03, "sgd": 0.03}
"""The learning rates of both checks, whatever the spec's: they take dozens of steps."""
_CLIP = 1.0

_BY_HEART_ROWS, _FEWEST_ROWS, _CANDIDATES = 32, 8, 2048
_BY_HEART_STEPS = 300
_BY_HEART_TEXTS = 2
"""Windows of a language model: hundreds of tokens."""
_LEFT = 0.2
"""Share of the loss that may be left. Healthy networks get below it in 10 to 100 steps, on labels
that are noise too; those that cannot learn stay above 0.9."""

_TWIN_STEPS, _TWIN_EVERY, _TWIN_ROWS, _UNSEEN_ROWS = 30, 10, 256, 2048
_BETTER, _WORSE = 2.0, -3.0
"""Standard errors that a difference has to be, to count as one. Measured on 144 sets of 500 to
20,000 rows with weak signals (AUC 0.5 to 0.64): none was worse by more than 2.5."""
_NO_DIFFERENCE = 1e-6
"""Predictions of two rows that differ by less differ by rounding alone."""


def overfits_one_batch(subject: Subject) -> SanityCheck:
    """Train a clone on a few rows until most of the loss that can go is gone.

    The rows are few (at most 32), far from each other, and of the classes in round robin. With one
    more of them than there are inputs a plane could part them any way: labels that are pure noise
    are learned by heart as well. A narrow table gives few such rows, so more are tried first; where
    only the few are learned, nobody can tell, and it warns.
    """
    rows = _by_heart(subject, _FEWEST_ROWS)
    left, step = _learned(subject, rows)
    if left is None:
        said = (
            f"The loss of {counted(len(rows.label), 'row')} is nearly 0: there is nothing to learn."
        )
        return verdict("overfits_one_batch", 0.0, _LEFT, said, "")
    fewer = _by_heart(subject, 1)
    if not left <= _LEFT and len(fewer.label) < len(rows.label):
        left_of_fewer, steps = _learned(subject, fewer)
        if left_of_fewer is None or left_of_fewer <= _LEFT:
            return _undecided(rows, left, fewer, steps)
    saw = (
        f"After {step} steps on the same {counted(len(rows.label), 'row')} {left:.0%} of the loss"
        f" is left; expected at most {_LEFT:.0%} within {_BY_HEART_STEPS} steps."
    )
    remedy = (
        "It cannot learn even these by heart: look at the loss, at the optimizer's list of"
        " parameters, and at whether rows and labels stay together; or the network is too small."
    )
    return verdict("overfits_one_batch", left, _LEFT, saw, remedy)


def _learned(subject: Subject, rows: Tensors) -> tuple[float | None, int]:
    """The share of the loss that is left, and after how many steps; None: there was none."""
    floor = _entropy_of_shares(rows) if subject.task == "ranking" else 0.0
    network = subject.clone()
    optimizer = _optimizer(network, subject)
    first = float(subject.loss(network, rows).detach()) - floor
    if first < 1e-6:
        return None, 0
    own = network.own_loss is not None  # which may be above 0 where every row is learned
    if own:
        first = _of_task(network, subject, rows)
    left, step = 1.0, 0
    while step < _BY_HEART_STEPS and left > _LEFT:
        loss = _step(network, optimizer, subject, rows)
        if own:
            loss = _of_task(network, subject, rows)
        left, step = (loss - floor) / first, step + 1
    return left, step


@torch.no_grad()
def _of_task(network: Network, subject: Subject, rows: Tensors) -> float:
    """The mean loss of the task, whatever training minimizes."""
    predicted = predictions(_logits(network, rows, blank=False), subject.task)
    return float(prediction_losses(predicted, rows, subject.task).mean())


def _undecided(rows: Tensors, left: float, fewer: Tensors, steps: int) -> SanityCheck:
    known = bool(np.isfinite(left))
    return SanityCheck(
        name="overfits_one_batch",
        outcome="warned" if known else "failed",
        value=left if known else None,
        bound=_LEFT,
        reason=(
            f"This cannot be judged: {counted(len(fewer.label), 'row', 'are')} learned by heart in"
            f" {steps} steps, but of {counted(len(rows.label), 'row')} {left:.0%} of the loss is"
            " left. The table is so narrow that labels of more rows may contradict each other."
            " Look at the loss of the training."
        ),
    )


def beats_zero_inputs(subject: Subject, *, learns: bool) -> SanityCheck:
    """Two clones take the same steps, one on the rows, one on zeros in their place.

    Both are judged on rows of the validation split, each at its best of a few moments. Better
    passes. Much worse, or one prediction for all rows, fails: the inputs do not arrive, or do not
    belong to these labels. In between it warns: so few steps cannot tell a weak signal from none,
    and a gate on the report (better than the constant) can.

    Args:
        learns: a batch could be learned by heart; where it could not, nothing is to be compared.
    """
    unseen = subject.unseen(_UNSEEN_ROWS)
    seeing = _best(subject, unseen, blank=False)
    real, zero = seeing.losses, _best(subject, unseen, blank=True).losses
    gain = zero - real
    mean = float(gain.mean())
    error = float(gain.std() / np.sqrt(len(gain)))
    saw = (
        f"After {_TWIN_STEPS} steps the loss of {counted(len(gain), 'unseen row')} is"
        f" {real.mean():.4f} with their inputs and {zero.mean():.4f} without: better by"
        f" {mean:.4f} +- {error:.4f}; expected better than chance."
    )
    if mean > _BETTER * error:
        outcome, remedy = "passed", ""
    elif not learns:
        outcome = "warned"
        remedy = " It learns nothing yet, so this says nothing: see overfits_one_batch."
    elif mean < _WORSE * error or seeing.spread < _NO_DIFFERENCE:
        outcome = "failed"
        remedy = (
            " The inputs carry nothing about these labels: look whether features arrive as zeros,"
            " whether rows and labels belong together, and what the features are."
        )
    else:
        outcome = "warned"
        remedy = (
            " The signal is weak or the rows are few; training continues, and the gates decide."
        )
    known = bool(np.isfinite(mean) and np.isfinite(error))
    return SanityCheck(
        name="beats_zero_inputs",
        outcome=outcome if known else "failed",
        value=mean if known else None,
        bound=_BETTER * error if known else 0.0,
        reason=saw + remedy,
    )


class TwinScore(NamedTuple):
    """A twin on rows that it has not seen."""

    losses: NDArray[np.float64]
    """[units]: of each row or, of a ranking, each query."""
    spread: float
    """The largest of what it predicts less the smallest."""


def _best(subject: Subject, unseen: Tensors, *, blank: bool) -> TwinScore:
    """A clone at its best moment on the unseen rows."""
    network = subject.clone()
    optimizer = _optimizer(network, subject)
    found: list[TwinScore] = []
    for step in range(_TWIN_STEPS):
        rows = subject.batch(_TWIN_ROWS, step)
        _step(network, optimizer, subject, rows, blank=blank)
        if (step + 1) % _TWIN_EVERY == 0:
            found.append(_judge(subject, network, unseen, blank=blank))
    return min(found, key=lambda judged: float(np.nan_to_num(judged.losses.mean(), nan=np.inf)))


def _logits(network: Network, rows: Tensors, *, blank: bool) -> torch.Tensor:
    """[n, members, outputs], in training as when it is judged: a batch norm's running statistics
    come after more steps than these. Rows that are all zeros, of words never seen, have one output:
    it is computed once."""
    if not blank:
        return network(rows.numeric, rows.categorical, one_microbatch(rows))
    one = network(torch.zeros_like(rows.numeric[:1]), torch.zeros_like(rows.categorical[:1]), None)
    return one.expand(len(rows.label), -1, -1)


@torch.no_grad()
def _judge(subject: Subject, network: Network, rows: Tensors, *, blank: bool) -> TwinScore:
    predicted = predictions(_logits(network, rows, blank=blank), subject.task)
    each = (prediction_losses(predicted, rows, subject.task) * subject.weights(rows)).numpy()
    if rows.starts is not None:
        each = np.add.reduceat(each, rows.starts[:-1].numpy())
    return TwinScore(each, float((predicted.amax(0) - predicted.amin(0)).max()))


def _optimizer(network: Network, subject: Subject) -> Optimizer:
    """The one that trains, at a rate of the check's own."""
    optimizer = make_optimizer(network, subject.spec)
    for group in optimizer.param_groups:
        group["lr"] = _RATES[subject.spec.optimizer]
    return optimizer


def _step(
    network: Network, optimizer: Optimizer, subject: Subject, rows: Tensors, *, blank: bool = False
) -> float:
    """One update; the loss before it."""
    loss = subject.mean_loss(_logits(network, rows, blank=blank), rows)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), _CLIP)
    optimizer.step()
    return float(loss.detach())


def _by_heart(subject: Subject, fewest: int) -> Tensors:
    """Rows to learn by heart, one more than there are inputs, and not fewer than these."""
    if subject.task == "ranking":
        return subject.batch(_BY_HEART_ROWS)
    if subject.task == "language_model":
        return subject.batch(_BY_HEART_TEXTS)
    rows = subject.batch(_CANDIDATES)
    numeric, codes = rows.numeric.numpy(), rows.categorical.numpy()
    vary = int((np.ptp(numeric, axis=0) > 0).sum() + (np.ptp(codes, axis=0) > 0).sum())
    classes = None if subject.task == "regression" else rows.label.numpy()
    count = min(_BY_HEART_ROWS, max(fewest, vary + 1))
    far = torch.from_numpy(_far_apart(numeric, codes, classes, count))
    return Tensors(rows.numeric[far], rows.categorical[far], rows.label[far])


def _far_apart(
    numeric: NDArray[np.generic],
    codes: NDArray[np.generic],
    classes: NDArray[np.generic] | None,
    count: int,
) -> NDArray[np.int64]:
    """Numbers of rows, each as far as can be from those before it; the classes round robin."""
    everyone = np.ones(len(numeric), bool)
    masks = [everyone] if classes is None else [classes == value for value in np.unique(classes)]
    nearest = np.full(len(numeric), np.finfo(np.float64).max)
    chosen: list[int] = []
    while len(chosen) < count:
        of_class = np.where(masks[len(chosen) % len(masks)], nearest, -1.0)
        row = int(of_class.argmax())
        if of_class[row] <= 0:
            break  # every other row of the class is one of those again
        chosen.append(row)
        apart = ((numeric - numeric[row]) ** 2).sum(1) + (codes != codes[row]).sum(1)
        nearest = np.minimum(nearest, apart)
    return np.array(chosen)


def _entropy_of_shares(rows: Tensors) -> float:
    """Mean over queries of the entropy of their shares; rows with equal inputs share alike."""
    assert rows.starts is not None
    inputs = torch.cat([rows.numeric, rows.categorical.float()], dim=1).numpy()
    share, starts = rows.label.double().numpy(), rows.starts.numpy()
    total = 0.0
    for first, last in itertools.pairwise(starts):
        _, same = np.unique(inputs[first:last], axis=0, return_inverse=True)
        mine = share[first:last]
        best = (np.bincount(same.ravel(), mine) / np.bincount(same.ravel()))[same.ravel()]
        total -= float((mine[mine > 0] * np.log(best[mine > 0])).sum())
    return total / (len(starts) - 1)
