"""Which loss, weights and draws go with which task and family, and when they move probabilities."""

from collections.abc import Iterator, Sequence

from ml_assets.spec.base import Misfit
from ml_assets.spec.training import Task, TrainingSpec

_WITH_CLASSES: frozenset[Task] = frozenset({"binary", "multiclass"})


def objective_problems(training: TrainingSpec, task: Task, classes: Sequence[str]) -> list[Misfit]:
    """What does not go together, each with what to set instead.

    Args:
        classes: of a multiclass label, else empty.
    """
    found = [*_of_weights(training, task, classes), *_of_draws(training, task, classes)]
    if task not in _WITH_CLASSES:
        if training.loss == "focal":
            found.append(_misfit("loss", f"focal is for classes, this label is {task}: remove it"))
        if training.recalibrate:
            said = f"{task} predicts no probabilities, there is nothing to calibrate: remove it"
            found.append(_misfit("recalibrate", said))
    default = type(training).model_fields["focal_gamma"].default
    if training.loss != "focal" and training.focal_gamma != default:
        said = "it is of the focal loss: set training.loss: focal, or remove it"
        found.append(_misfit("focal_gamma", said))
    return found


def moves_probabilities(training: TrainingSpec) -> bool:
    """Whether training aims at something else than the probabilities themselves."""
    weighed = training.positive_weight != 1 or len(set(training.class_weights)) > 1
    return weighed or training.oversample is not None or training.loss == "focal"


def _of_weights(training: TrainingSpec, task: Task, classes: Sequence[str]) -> Iterator[Misfit]:
    weighed, given = training.positive_weight != 1, len(training.class_weights)
    if weighed and task != "binary":
        instead = "set training.class_weights" if task == "multiclass" else "remove it"
        said = f"training.positive_weight is for a binary label, this one is {task}: {instead}"
        yield Misfit(("training", "positive_weight"), said)
    if given and task != "multiclass":
        instead = "set training.positive_weight" if task == "binary" else "remove it"
        said = f"it is for a multiclass label, this one is {task}: {instead}"
        yield _misfit("class_weights", said)
    elif given and given != len(classes):
        said = (
            f"it has {given} weights, label.classes has {len(classes)}: give one for each of"
            f" {list(classes)}, in this order"
        )
        yield _misfit("class_weights", said)


def _of_draws(training: TrainingSpec, task: Task, classes: Sequence[str]) -> Iterator[Misfit]:
    share = training.oversample
    if share is None:
        return
    if task not in _WITH_CLASSES:
        yield _misfit("oversample", f"it is for classes, this label is {task}: remove it")
        return
    number = len(classes) if task == "multiclass" else 2
    if share * number > 1:
        said = (
            f"each of {number} classes cannot be at least {share:g} of the draws: set at most"
            f" {1 / number:.3g}"
        )
        yield _misfit("oversample", said)
    weights = "positive_weight" if task == "binary" else "class_weights"
    if training.positive_weight != 1 or training.class_weights:
        said = f"with training.{weights} a rare class is lifted twice: keep one of the two"
        yield _misfit("oversample", said)


def _misfit(name: str, said: str) -> Misfit:
    return Misfit(("training", name), f"training.{name}: {said}")
