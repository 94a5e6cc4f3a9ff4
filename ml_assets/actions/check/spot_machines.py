"""Checks that a training fits machines that may be taken away: the size and interval of saves
against the notice.

Pure arithmetic on the spec. The words of a categorical feature are only known from data, so they
are given, or assumed to be as many as give the widest embedding.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ml_assets.errors import counted
from ml_assets.settings import Settings
from ml_assets.spec.cluster import over_nodes
from ml_assets.spec.gpt import Gpt, parameter_count
from ml_assets.spec.memory_estimate import (
    ALLOWANCE_SECONDS,
    BYTES_PER_MB,
    NUMBER_BYTES,
    STATES,
    Room,
    machine_room,
    notice_seconds,
    parameters,
    pod_room,
    write_seconds,
)
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.training import Mlp, ModelSpec, TabM, TrainingSpec, outputs_of
from ml_assets.spec.training_program import World, training_world

MOST_MINUTES = 30
"""Between two saves: what a machine that is taken back may cost of all of them."""
_NO_INTERVAL = (
    "a kill without notice loses all since the last evaluation, however long that is: set"
    " training.checkpoint_minutes or training.checkpoint_every"
)


@dataclass(frozen=True)
class StateSize:
    """Holds what a checkpoint holds, and how it was counted."""

    parameters: int
    bytes: int
    how: str


@dataclass(frozen=True)
class SpotVerdict:
    fits: bool
    reason: str
    """The arithmetic, and what to change where it does not fit."""


def world_and_room(spec: PipelineSpec, settings: Settings) -> tuple[World, Room]:
    """The processes of a training, and the memory that those of one machine or pod share."""
    world = training_world(spec.model, spec.training)
    if settings.launcher == "kubernetes":
        return over_nodes(world, spec.cluster), pod_room(spec.cluster)
    return world, machine_room()


def words_from_limit(model: ModelSpec) -> int:
    """The fewest words that give an embedding its full width: ceil(1.6 v^0.56) = limit."""
    if not isinstance(model, Mlp | TabM):
        return 0
    words = 1
    while math.ceil(1.6 * words**0.56) < model.embedding_limit:
        words += 1
    return words


def state_size(
    spec: PipelineSpec, vocabularies: Sequence[int] | None = None, null_flags: int | None = None
) -> StateSize:
    """Bytes of weights and optimizer states of a network, in fp32.

    Args:
        vocabularies: words of each categorical feature, from a training set; None: not known.
        null_flags: extra columns of that set; None: one for each numeric feature.
    """
    model = spec.model
    tokens = spec.features.tokens
    if isinstance(model, Gpt) and tokens is not None:
        count = parameter_count(model, tokens.vocabulary)
        return _state(spec, count, f"{tokens.vocabulary:,} words at most")
    known = vocabularies is not None
    guess = words_from_limit(model)
    words = list(vocabularies) if known else [guess] * len(spec.features.categorical)
    flags = len(spec.features.numeric) if null_flags is None else null_flags
    outputs = outputs_of(spec.label.task, spec.label.classes)
    count = parameters(model, len(spec.features.numeric) + flags, words, outputs)
    guessed = f"{guess} words a category, a guess: no training set is published yet"
    return _state(spec, count, "the words of the last training set" if known else guessed)


def _state(spec: PipelineSpec, count: int, words: str) -> StateSize:
    training = spec.training
    unsent = training.processes if training.communication_hook else 0
    states = 1 + STATES[training.optimizer] + unsent
    how = (
        f"{counted(count, 'parameter')} x {states} numbers x {NUMBER_BYTES} bytes"
        f" ({training.optimizer}; {words})"
    )
    return StateSize(count, count * states * NUMBER_BYTES, how)


def judge_spot(training: TrainingSpec, size: StateSize) -> SpotVerdict:
    """Hold the interval and the size of saves to the notice; a spec without ``spot`` fits."""
    spot = training.spot
    if spot is None:
        return SpotVerdict(True, "not on spot")
    minutes = training.checkpoint_minutes
    if minutes is None and training.checkpoint_every is None:
        return SpotVerdict(False, _NO_INTERVAL)
    if minutes is not None and minutes > MOST_MINUTES:
        return SpotVerdict(
            False,
            f"a kill without notice loses up to {minutes:g} minutes of all machines: set"
            f" training.checkpoint_minutes to at most {MOST_MINUTES}, or leave training.spot out",
        )
    save = write_seconds(size.bytes, spot.write_mb_per_second)
    sum_of = (
        f"a state of {size.how} = {size.bytes / BYTES_PER_MB:,.1f} MB takes {save:,.1f} s at"
        f" {spot.write_mb_per_second:,g} MB/s"
    )
    interval = math.inf if training.checkpoint_minutes is None else 60 * training.checkpoint_minutes
    if save > interval:
        return SpotVerdict(
            False,
            f"{sum_of}, longer than the {interval:,.1f} s between two saves: raise"
            " training.checkpoint_minutes, or write faster",
        )
    needed = notice_seconds(size.bytes, spot.write_mb_per_second)
    if spot.notice_seconds and needed > spot.notice_seconds:
        return SpotVerdict(
            False,
            f"{sum_of}; a save in progress, the save after the notice and {ALLOWANCE_SECONDS:g} s"
            f" for a step and its evaluation take {needed:,.1f} s, but the notice is"
            f" {spot.notice_seconds:g} s:"
            " make the model smaller, write faster, or set notice_seconds: 0 (it is not relied on)",
        )
    return SpotVerdict(True, f"{sum_of}; {needed:,.1f} s of a notice of {spot.notice_seconds:g} s")
