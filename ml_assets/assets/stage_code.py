"""Which code decides what a stage makes: where it begins, and where it is followed no further.

What is not named in ``NOT_DECIDING`` counts: code in a new place makes too much again, never too
little.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from ml_assets.spec.closure import PACKAGE, closure
from ml_assets.spec.stages import DRIFT_STAGE

TABLES = "ml_assets.storage.tables:write_table"
PROGRAM = "ml_assets.training.__main__"

BEGINNINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "raw_snapshot": ("ml_assets.assets.raw_snapshot:raw_snapshot", TABLES),
        "validated_table": ("ml_assets.assets.validated_table:validated_table", TABLES),
        "derived_table": ("ml_assets.assets.derived_table:derived_table", TABLES),
        "feature_set": ("ml_assets.assets.feature_set:feature_set", TABLES),
        "online_features": ("ml_assets.assets.online_features:online_features",),
        "training_set": ("ml_assets.assets.training_set:training_set",),
        "checkpoints": ("ml_assets.assets.trained_model:trained_model", PROGRAM),
        "trained_model": ("ml_assets.assets.trained_model:trained_model", PROGRAM),
        "evaluation_report": (
            "ml_assets.assets.evaluation_report:evaluation_report",
            "ml_assets.checks.gates:gates",  # other gates decide on the report anew
            PROGRAM,
        ),
        "released_model": ("ml_assets.assets.released_model:released_model",),
        "canary_report": (
            "ml_assets.assets.canary_report:canary_report",
            "ml_assets.checks.canary:canary",
            PROGRAM,
        ),
        "promoted_model": ("ml_assets.assets.promoted_model:promoted_model",),
        DRIFT_STAGE: ("ml_assets.assets.drift_report:drift_report", PROGRAM),
    }
)
"""Stage -> where its code begins; a resource hands over what is not reached by name."""

READERS = {"sql": "ml_assets.sources.sql:read_sql"}
"""Kind of a source -> where reading it begins; all others are files."""
FILES = "ml_assets.sources.files:read_file"

_SAID = "what is said, drawn or told of a result that stands"
_KEPT = "where a result is kept: it is handed back byte for byte, or refused"
_SET_UP = "how the work is set up and passed on"
_TOOL = "a tool that carries, and computes nothing of a result"
NOT_DECIDING: Mapping[str, str] = MappingProxyType(
    {
        "ml_assets.errors": _SAID,
        "ml_assets.pictures": _SAID,
        "ml_assets.operations": _SAID,
        "ml_assets.assets.card": _SAID,
        "ml_assets.assets.card_page": _SAID,
        "ml_assets.assets.chronicle": _SAID,
        "ml_assets.assets.cost": _SAID,
        "ml_assets.assets.metadata": _SAID,
        "ml_assets.assets.release_page": _SAID,
        "ml_assets.assets.reporting": _SAID,
        "ml_assets.assets.training_events": _SAID,
        "ml_assets.storage": _KEPT,
        "ml_assets.registry": _KEPT,
        "ml_assets.assets.inputs": _KEPT,
        "ml_assets.assets.publish": _KEPT,
        "ml_assets.settings": _SET_UP,
        "ml_assets.resources": _SET_UP,
        "ml_assets.launch": _SET_UP,
        "ml_assets.assets.graph": _SET_UP,
        "ml_assets.assets.partitioned": _SET_UP,
        "ml_assets.training.staging": _SET_UP,
        "dagster": _TOOL,
        "pydantic": _TOOL,
        "boto3": _TOOL,
        "botocore": _TOOL,
        "sqlalchemy": _TOOL,
        "great_expectations": "an extra: it judges rows only by types that are not compiled",
        "lightgbm": "of the training program: its session names its versions",
        "safetensors": "of the training program",
        "torch": "of the training program",
    }
)
"""What counts for nothing, and is not followed -> why."""


@cache
def stage_code(stage: str, kind: str = "", package: Path = PACKAGE) -> str:
    """Digest of the code of this package that decides what a stage makes.

    Args:
        kind: of the source; of raw_snapshot only.
    """
    reader = (READERS.get(kind, FILES),) if stage == "raw_snapshot" else ()
    found = closure(
        (*BEGINNINGS[stage], *reader),
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
