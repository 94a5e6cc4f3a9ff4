"""The stages of the walk, in its order: the second part of every asset key; and models that were
made elsewhere, which no stage of it trained."""

from pydantic import Field

from ml_assets.spec.base import Frozen

SOURCE_STAGES = ("raw_snapshot", "validated_table")
DATA_STAGES = (*SOURCE_STAGES, "derived_table", "feature_set", "online_features")
"""The last one: of pipelines that serve features online."""
MODEL_STAGES = (
    "training_set",
    "checkpoints",
    "trained_model",
    "evaluation_report",
    "released_model",
)
CANARY_STAGES = ("canary_report", "promoted_model")
"""The stages of pipelines that ask for canary evidence."""
PREDICTIONS_STAGE = "predictions"
"""The stage of pipelines whose served predictions are logged."""
ONLINE_STAGE = "online_evaluation"
"""What was served, against the labels that came later; of the same pipelines."""
DRIFT_STAGE = "drift_report"
"""The stage of pipelines that watch for drift."""
SEARCH_STAGE = "hyperparameter_search"
"""The stage of pipelines that search for better parameters."""
STAGES = (
    *DATA_STAGES,
    MODEL_STAGES[0],
    SEARCH_STAGE,
    *MODEL_STAGES[1:],
    *CANARY_STAGES,
    PREDICTIONS_STAGE,
    ONLINE_STAGE,
    DRIFT_STAGE,
)
RAW_PREFIX = "raw_"
"""The prefix of a source's name, in the last part of the key of its raw snapshot."""


MADE_ELSEWHERE = "made elsewhere"
"""The code version of such a model: nobody here knows what code made it."""


class Registered(Frozen):
    """Words of the caller: nothing is decided by them."""

    version: str
    """What its makers call it."""
    uri: str
    """Where its files were taken from."""
    claims: dict[str, float] = Field(default_factory=dict)
    """Metric -> what they say it reaches."""
