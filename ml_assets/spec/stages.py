"""The stages of the walk, in its order: the second part of every asset key. Plain words, so that
the help of a command loads no pydantic."""

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
