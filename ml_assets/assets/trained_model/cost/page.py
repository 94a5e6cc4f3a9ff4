"""What a training cost, on the page of its model."""

from typing import Any

import dagster as dg

from ml_assets.assets.trained_model.cost.jobs import session_uses
from ml_assets.assets.trained_model.cost.session import numbers, table
from ml_assets.launch.folder import SessionFolder
from ml_assets.settings import read_settings
from ml_assets.store.objects import LocalObjects


def costs(objects: LocalObjects, session: str) -> dict[str, Any]:
    """Node-hours, GPU-hours, what of them was useful, and their cost where a price is known."""
    uses = session_uses(SessionFolder(objects.path("sessions", session)), read_settings().prices)
    shown = {"machines": dg.MetadataValue.md(table(uses).markdown())} if uses else {}
    return {**numbers(uses), **shown}
