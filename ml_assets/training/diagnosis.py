"""Names the problems of a training, from its history, each with a fix: pure functions.

A name is given only for patterns that no healthy training shows; the bounds give their reasons.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import median

from ml_assets.spec.base import Frozen

_FEW = 3
"""Evaluations below which nothing is said: a line needs more than two points."""
_STILL = 0.002
"""A plateau moves the validation loss by less than this share of it, from first to last. The split
is the same each time, so there is no chance in it: a network that learns at all moves it more."""
_BEGAN = 0.9
"""... and ends above this share of the loss of the very first step, which rules out a network that
was done before its first evaluation."""
_ROSE = 1.5
"""A divergence takes the training loss so far above where it began, and ends above ``_BEGAN`` of
that. A rough patch that training comes back from is none."""
_WORSE, _LEARNED = 1.3, 0.8
"""Overfitting: the validation loss ends this far above its best while the training loss went on
down to this share of what it was then. Up to there is what patience is for."""
_WAITING, _LATENCY_MS = 0.2, 5.0
"""Share of a step's time that a slow loader takes, and how long. Mapped arrays in memory take 1%
of a step and less, though more of one that takes a millisecond; a fifth is worth a person's
while."""


_SETTLES, _RISES = 3, 6
"""Memory is looked at from the second third of the evaluations on, where these are six or more."""
_GROWN, _GROWN_MB = 0.05, 20.0
"""Memory that grows does so by this share and by so much: an allocator's own ups and downs on
healthy trainings were under both."""


class Evaluated(Frozen):
    """One evaluation of a training."""

    step: int
    began: float
    """Loss of the first step since the evaluation before."""
    train_loss: float
    """Mean over the steps since then."""
    validation_loss: float
    data_wait_share: float
    """The share of the time of these steps that went into waiting for rows."""
    data_loading_latency_ms: float
    """Mean wait of a step."""
    memory_held_mb: float = 0.0
    """What the largest process holds then; 0: not known."""

    @classmethod
    def of(cls, step: int, began: float, metrics: Mapping[str, float]) -> "Evaluated":
        return cls(
            step=step,
            began=began,
            train_loss=metrics["train_loss"],
            validation_loss=metrics["validation_loss"],
            data_wait_share=metrics.get("data_wait_share", 0.0),
            data_loading_latency_ms=metrics.get("data_loading_latency_ms", 0.0),
            memory_held_mb=metrics.get("memory_held_mb", 0.0),
        )


History = Sequence[Evaluated]


def advise(history: History) -> tuple[str, ...]:
    """Name what ails a training that ended, each as ``name: what was seen; what to do``."""
    if len(history) < _FEW:
        return ()
    said = {name: look(history) for name, look in _AILMENTS.items()}
    return tuple(f"{name}: {found}" for name, found in said.items() if found)


def plateau(history: History) -> str | None:
    """The loss never moved."""
    first, last = history[0], history[-1]
    losses = [at.validation_loss for at in history]
    moved = (max(losses) - min(losses)) / max(abs(first.validation_loss), 1e-12)
    if moved >= _STILL or last.train_loss < _BEGAN * first.began:
        return None
    return (
        f"the validation loss stayed within {moved:.2%} of {first.validation_loss:.4f} from step"
        f" {first.step} to {last.step}. Raise training.learning_rate tenfold; if it still does not"
        " move, the features carry nothing about the label (see the check beats_zero_inputs)."
    )


def divergence(history: History) -> str | None:
    """The training loss rose above where it began, and did not come back."""
    began, last = history[0].began, history[-1]
    highest = max(history, key=lambda at: at.train_loss)
    if highest.train_loss < _ROSE * began or last.train_loss < _BEGAN * began:
        return None
    return (
        f"the training loss began at {began:.4f}, rose to {highest.train_loss:.4f} by step"
        f" {highest.step} and ended at {last.train_loss:.4f}. Lower training.learning_rate tenfold,"
        " raise training.warmup, or lower training.clip_norm."
    )


def overfitting(history: History) -> str | None:
    """The validation loss rose while the training loss fell."""
    best = min(range(len(history)), key=lambda place: history[place].validation_loss)
    at, last = history[best], history[-1]
    if len(history) - best <= _FEW or last.validation_loss < _WORSE * at.validation_loss:
        return None
    if last.train_loss > _LEARNED * at.train_loss:
        return None
    return (
        f"from step {at.step} to {last.step} the training loss fell from {at.train_loss:.4f} to"
        f" {last.train_loss:.4f} and the validation loss rose from {at.validation_loss:.4f} to"
        f" {last.validation_loss:.4f}. The model is that of step {at.step}; the time after it was"
        " lost. Train on more rows, raise model.dropout or training.weight_decay, choose a smaller"
        " model, or lower training.epochs or training.patience."
    )


def slow_loader(history: History) -> str | None:
    """Steps wait for their rows."""
    share = median(at.data_wait_share for at in history)
    latency = median(at.data_loading_latency_ms for at in history)
    if share < _WAITING or latency < _LATENCY_MS:
        return None
    return (
        f"{share:.0%} of the time of the steps, {latency:.0f} ms each, went into waiting for rows."
        " Put the training set on a faster disk, or into memory (its arrays are mapped: free memory"
        " keeps them), or raise training.batch_size. Where rows are fetched, raise"
        " cluster.data_cache or training.block_rows."
    )


def growing_memory(history: History) -> str | None:
    """Each evaluation finds more memory held than the one before, to the end."""
    later = history[len(history) // _SETTLES :]  # buffers and caches fill at first
    held = [at.memory_held_mb for at in later]
    if len(later) < _RISES or not min(held) or any(b <= a for a, b in pairwise(held)):
        return None
    grown, middle = held[-1] - held[0], held[len(held) // 2]
    if grown < max(_GROWN * held[0], _GROWN_MB) or held[-1] - middle < grown / 4:
        return None
    steps = later[-1].step - later[0].step
    return (
        f"from step {later[0].step} to {later[-1].step} the largest process came to hold "
        f"{held[-1]:,.0f} MB instead of {held[0]:,.0f}, {grown / steps:.3g} MB more with each "
        "step, and it was not levelling off. Something keeps the results of each step: in a "
        "network, loss or augmentation of your own look for a list or an attribute that grows, "
        "and for a tensor that is kept without .detach() or .item(), which keeps its whole "
        "graph."
    )


_AILMENTS: dict[str, Callable[[History], str | None]] = {
    "plateau": plateau,
    "divergence": divergence,
    "overfitting": overfitting,
    "slow loader": slow_loader,
    "growing memory": growing_memory,
}


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out, on the host or on a GPU, whichever way the error says it.

    torch raises ``OutOfMemoryError`` for a GPU, and a bare ``RuntimeError`` of its CPU allocator.
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError | OSError) and any(sign in text for sign in _SIGNS)


_SIGNS = ("can't allocate memory", "cannot allocate memory", "out of memory", "not enough memory")
LESS_MEMORY = (
    "Lower training.batch_size and raise training.accumulate by as much (the update stays the"
    " same), set training.strategy to shard and raise training.processes, or give it more memory."
)
