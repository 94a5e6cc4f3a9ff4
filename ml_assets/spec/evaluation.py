"""The spec of evaluation: a model is judged on its holdout, and on earlier ones if asked."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ml_assets.errors import counted
from ml_assets.spec.base import Frozen, Misfit, Name, Positive, unset
from ml_assets.spec.gates import BaselineSpec, ValueBaseline
from ml_assets.spec.split import ShareSplit, TimeSharesSplit, WindowSplit, is_by_time
from ml_assets.spec.training import TrainingSpec

MOST_HELD_OUT = 0.75
"""Most of the rows that all holdouts and a validation split may take: the rest is trained on."""
_ROUNDING = 1e-9


class SimpleModel(Frozen):
    """The baseline that is simple enough to be released instead, if the model is hardly better.

    The report recommends one of the two; it blocks nothing.
    """

    baseline: Name
    """One of ``evaluation.baselines`` that predicts."""
    min_effect: Annotated[float, Field(ge=0)] = 0.005
    """How much lower the model's mean loss of a row has to be to be worth its cost."""


class OriginsSpec(Frozen):
    """Rolling origin: the spec is judged on holdouts that follow each other, the newest last.

    For each one but the newest a model is trained on what came before it. Each evaluation thus
    costs so many trainings more; one that was made before is not made again.
    """

    count: Annotated[int, Field(ge=2, le=20)]
    """Holdouts, the newest among them. In a spec ``origins: 4`` is ``origins: {count: 4}``."""
    judge: Literal["mean", "worst"] = "mean"
    """What gates of the kinds ``bound`` and ``baseline`` hold to their bounds: the mean over the
    origins, or the worst of them. The other gates judge the model on its own holdout."""


def _count_alone(raw: Any) -> Any:
    return {"count": raw} if isinstance(raw, int) and not isinstance(raw, bool) else raw


class EvaluationSpec(Frozen):
    """Describes how a model is judged on the holdout."""

    baselines: tuple[BaselineSpec, ...] = Field(default=(), strict=False)
    simple_model: SimpleModel | None = None
    slices: tuple[str, ...] = Field(default=(), strict=False)
    """Categorical columns of the feature set to report on separately."""
    bootstrap_samples: Positive = 1000
    block: Literal["row", "day", "entity"] = "day"
    """Rows of one day share weather and delays: resample days, not rows. ``entity``: those that
    ``split.groups`` names.

    A ranking is judged by the query: ``row`` resamples queries.
    """
    ndcg_at: Positive = 10
    """Ranking: positions from the top that count in NDCG."""
    origins: Annotated[OriginsSpec | None, BeforeValidator(_count_alone)] = Field(
        default=None, exclude_if=unset
    )
    """Holdouts before the newest to judge the spec on, too; None: the newest alone."""


def simple_model_problems(evaluation: EvaluationSpec) -> list[Misfit]:
    """A simple model that is no baseline."""
    simple = evaluation.simple_model
    predict = [one for one in evaluation.baselines if not isinstance(one, ValueBaseline)]
    names = sorted(baseline.name for baseline in predict)
    if simple is None or simple.baseline in names:
        return []
    said = (
        f"evaluation.simple_model names baseline {simple.baseline!r};"
        f" of evaluation.baselines {names} predict"
    )
    return [Misfit(("evaluation", "simple_model", "baseline"), said)]


def origin_problems(
    origins: OriginsSpec | None, split: WindowSplit | ShareSplit, training: TrainingSpec
) -> Iterator[Misfit]:
    """Holdouts that cannot follow each other, or that a model has seen before."""
    if origins is None:
        return
    if not is_by_time(split):
        said = "evaluation.origins are holdouts one after the other: use a split of kind: time"
        yield Misfit(("evaluation", "origins"), said)
    for name in ("init_from", "distill"):
        if getattr(training, name) is not None:
            said = (
                f"training.{name} names a model that may have seen the earlier holdouts of"
                " evaluation.origins: leave one of the two out"
            )
            yield Misfit(("training", name), said)
    if isinstance(split, TimeSharesSplit):
        held = origins.count * split.holdout + split.validation
        most = int((MOST_HELD_OUT - split.validation) / split.holdout + _ROUNDING)
        if held > MOST_HELD_OUT + _ROUNDING:
            said = (
                f"evaluation.origins: {counted(origins.count, 'holdout')} of {split.holdout:g} "
                f"and validation are {held:.0%} of the rows, and leave too few rows to train on: "
                f"ask for at most {most}, or for a smaller split.holdout"
            )
            yield Misfit(("evaluation", "origins"), said)
