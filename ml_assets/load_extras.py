"""Loads the extras: which field of a spec, which command and which page asks for which module.

The core imports no extra by name: it asks here, and an extra is imported on demand. To remove one,
delete its folder below ``extras/``, its lines here, and its field or command.
``graph/stage_code.py`` says where the code of its stages begins.
"""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ml_assets.spec.pipeline import PipelineSpec

FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "online": "ml_assets.extras.online.entry",
        "release.canary": "ml_assets.extras.canary.entry",
        "release.rollout": "ml_assets.extras.serving.entry",
    }
)
"""Field of a spec -> what it adds to a pipeline: its ``assets``, ``checks``, ``jobs`` and
``sensors``, each a function of the pipeline, and whatever else the automation asks of it."""

ENGINES: Mapping[str, str] = MappingProxyType({"duckdb": "ml_assets.extras.duckdb_engine.engine"})
"""Kind of ``features.engine`` -> the module whose ``OnDuckDB`` runs a feature function."""

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "demo": "ml_assets.extras.demo.command",
        "data generate": "ml_assets.extras.demo.command",
        "data land-week": "ml_assets.extras.demo.command",
        "data lookup": "ml_assets.extras.online.command",
        "data recall": "ml_assets.extras.recall.command",
        "models cost": "ml_assets.extras.cost.command",
        "ops api": "ml_assets.extras.api.command",
        "ops data-model": "ml_assets.extras.api.command",
        "release promote": "ml_assets.extras.canary.command",
        "release prove": "ml_assets.extras.prove.command",
        "serve": "ml_assets.extras.serving.command",
    }
)
"""Command -> the module that holds it."""

PAGES: Mapping[str, str] = MappingProxyType(
    {"experiments": "ml_assets.extras.cost.months", "home": "ml_assets.extras.cost.months"}
)
"""Page -> what draws on it, too: ``pictures_of(pipeline)``; on the first page ``this_month``."""


def load_extra(field: str) -> Any:
    """Import the module behind a field of a spec."""
    return import_module(FIELDS[field])


def load_extras(spec: "PipelineSpec") -> list[Any]:
    """Import the modules behind the fields that a spec sets."""
    return [load_extra(field) for field in FIELDS if _is_set(spec, field)]


def drawing_on(page: str) -> list[Any]:
    """Import the modules that draw on a page."""
    return [import_module(PAGES[page])] if page in PAGES else []


def _is_set(spec: "PipelineSpec", field: str) -> bool:
    value: Any = spec
    for name in field.split("."):
        value = getattr(value, name)
    return value not in (None, "none")
