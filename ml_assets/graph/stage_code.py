"""Lists the code that decides a stage's result: where it begins, and where it is followed no
further.

Everything not named in ``NOT_DECIDING`` counts: code in a new place makes too much again, never too
little.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from ml_assets.spec.reached_code import PACKAGE, closure
from ml_assets.spec.stages import DRIFT_STAGE, ONLINE_STAGE, PREDICTIONS_STAGE, SEARCH_STAGE

TABLES = "ml_assets.store.table_files:write_table"
PROGRAM = "ml_assets.training.__main__"

BEGINNINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "raw_snapshot": ("ml_assets.assets.raw_snapshot.asset:raw_snapshot", TABLES),
        "validated_table": ("ml_assets.assets.validated_table.asset:validated_table", TABLES),
        "derived_table": ("ml_assets.assets.derived_table.asset:derived_table", TABLES),
        "feature_set": ("ml_assets.assets.feature_set.asset:feature_set", TABLES),
        "online_features": ("ml_assets.extras.online.asset:online_features",),
        "training_set": ("ml_assets.assets.training_set.asset:training_set",),
        "checkpoints": ("ml_assets.assets.trained_model.asset:trained_model", PROGRAM),
        "trained_model": ("ml_assets.assets.trained_model.asset:trained_model", PROGRAM),
        "evaluation_report": (
            "ml_assets.assets.evaluation_report.asset:evaluation_report",
            "ml_assets.assets.released_model.checks:gates",  # other gates decide on the report anew
            PROGRAM,
        ),
        "released_model": ("ml_assets.assets.released_model.asset:released_model",),
        "canary_report": (
            "ml_assets.extras.canary.canary_report.asset:canary_report",
            "ml_assets.extras.canary.canary_report.checks:canary",
            PROGRAM,
        ),
        "promoted_model": ("ml_assets.extras.canary.promoted_model.asset:promoted_model",),
        PREDICTIONS_STAGE: ("ml_assets.extras.serving.predictions.asset:predictions", TABLES),
        ONLINE_STAGE: ("ml_assets.extras.serving.online_evaluation.asset:online_evaluation",),
        DRIFT_STAGE: ("ml_assets.assets.drift_report.asset:drift_report", PROGRAM),
        SEARCH_STAGE: (
            "ml_assets.assets.hyperparameter_search.asset:hyperparameter_search",
            PROGRAM,
        ),
    }
)
"""Stage -> where its code begins; a resource hands over what is not reached by name."""

_LAKE = "ml_assets.assets.raw_snapshot.readers.lakehouse:read_lake"
READERS = {
    "sql": "ml_assets.assets.raw_snapshot.readers.sql:read_sql",
    "delta": _LAKE,
    "iceberg": _LAKE,
}
"""Kind of a source -> where reading it begins; all others are files."""
ENGINES = {"duckdb": "ml_assets.extras.duckdb_engine.engine:OnDuckDB"}
"""Kind of the engine of the features -> where running them begins; polars is in every stage."""
FILES = "ml_assets.assets.raw_snapshot.readers.files:read_file"

_SAID = "what is said, drawn or told of a result that stands"
_KEPT = "where a result is kept: it is handed back byte for byte, or refused"
_SET_UP = "how the work is set up and passed on"
_TOOL = "a tool that carries, and computes nothing of a result"
NOT_DECIDING: Mapping[str, str] = MappingProxyType(
    {
        "ml_assets.assets.trained_model.cost": _SAID,
        "ml_assets.assets.trained_model.live_events": _SAID,
        "ml_assets.assets.evaluation_report.pictures": _SAID,
        "ml_assets.assets.evaluation_report.quality_pictures": _SAID,
        "ml_assets.assets.drift_report.last_report": _SAID,
        "ml_assets.assets.drift_report.pictures": _SAID,
        "ml_assets.assets.feature_set.replay": _SAID,
        "ml_assets.assets.released_model.page": _SAID,
        "ml_assets.assets.released_model.report_file": _SAID,
        "ml_assets.assets.released_model.made_from": _KEPT,
        "ml_assets.assets.released_model.promote": _KEPT,
        "ml_assets.assets.released_model.tags": _KEPT,
        "ml_assets.assets.hyperparameter_search.page": _SAID,
        "ml_assets.assets.hyperparameter_search.mlflow_study": _SAID,
        "ml_assets.assets.raw_snapshot.sources": _SET_UP,
        "ml_assets.graph.data_card": _SAID,
        "ml_assets.graph.code_version": _SET_UP,
        "ml_assets.graph.inputs": _KEPT,
        "ml_assets.graph.publish": _KEPT,
        "ml_assets.records.tracking.projection": _SAID,
        "ml_assets.errors": _SAID,
        "ml_assets.records.ledger": _KEPT,
        "ml_assets.records.record_history": _KEPT,
        "ml_assets.records.run_record": _KEPT,
        "ml_assets.records.load_release": _KEPT,
        "ml_assets.records.recalls": _KEPT,
        "ml_assets.records.tracking": _KEPT,
        "ml_assets.launch": _SET_UP,
        "ml_assets.store.pipeline_context": _SET_UP,
        "ml_assets.store.local_checkpoints": _KEPT,
        "ml_assets.store.checkpoint_store": _KEPT,
        "ml_assets.store.s3": _KEPT,
        "ml_assets.store.disk": _KEPT,
        "ml_assets.store.layout": _KEPT,
        "ml_assets.store.home": _KEPT,
        "ml_assets.store.objects": _KEPT,
        "ml_assets.store.retries": _KEPT,
        "ml_assets.store.safetensors_file": _KEPT,
        "ml_assets.store.snapshots": _KEPT,
        "ml_assets.extras.online.features": _SAID,
        "ml_assets.extras.online.open": _KEPT,
        "ml_assets.extras.online.store": _KEPT,
        "ml_assets.reports": _SAID,
        "ml_assets.adapters": _SET_UP,
        "ml_assets.settings": _SET_UP,
        "dagster": _TOOL,
        "pydantic": _TOOL,
        "boto3": _TOOL,
        "botocore": _TOOL,
        "sqlalchemy": _TOOL,
        "great_expectations": "an extra: it judges rows only by types that are not compiled",
        "lightgbm": "of the training program: its session names its versions",
        "safetensors": "of the training program",
        "torch": "of the training program",
        "xgboost": "of the training program: its session names its versions",
    }
)
"""What counts for nothing, and is not followed -> why."""


@cache
def stage_code(stage: str, kind: str, package: Path = PACKAGE) -> str:
    """Digest of the code of this package that decides what a stage makes.

    Args:
        kind: of the source, of raw_snapshot; of the engine, of feature_set; else there is none.
    """
    reader = (READERS.get(kind, FILES),) if stage == "raw_snapshot" else ()
    engine = (ENGINES[kind],) if stage == "feature_set" and kind else ()
    found = closure(
        (*BEGINNINGS[stage], *reader, *engine),
        stops=[*NOT_DECIDING],
        values=["ml_assets.spec"],
        package=package,
    )
    return found.digest()


def function_code(folder: Path, function: str) -> str:
    """Digest of what a team's function runs: its file, what is imported beside it, and helpers."""
    file, name = function.split(":")
    module = ".".join(Path(file).with_suffix("").parts)
    found = closure(
        [f"{module}:{name}"], stops=[*NOT_DECIDING], values=["ml_assets.spec"], folder=folder
    )
    return found.digest()
