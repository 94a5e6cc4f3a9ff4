"""What a training cost, on the page of its model."""

from typing import Any

from ml_assets.adapters.metadata import markdown
from ml_assets.assets.trained_model.cost.jobs import session_uses
from ml_assets.assets.trained_model.cost.session import numbers, table
from ml_assets.launch.folder import SessionFolder
from ml_assets.store.pipeline_context import Pipeline


def costs(pipeline: Pipeline, session: str) -> dict[str, Any]:
    """Node-hours, GPU-hours, what of them was useful, and their cost where a price is known."""
    uses = session_uses(
        SessionFolder(pipeline.objects.path("sessions", session)), pipeline.settings.prices
    )
    shown = {"machines": markdown(table(uses).markdown())} if uses else {}
    return {**numbers(uses), **shown}
