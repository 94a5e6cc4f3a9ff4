"""The cost of a training on its model's page: numbers, and the use of its machines."""

from collections.abc import Sequence
from typing import Any

from ml_assets.adapters.metadata import markdown, numbers
from ml_assets.assets.trained_model.cost.jobs import Use, session_uses
from ml_assets.assets.trained_model.cost.money import HOUR, added, in_words, of_time, rounded
from ml_assets.assets.trained_model.cost.split import PARTS, Part, total
from ml_assets.launch.session_folder import SessionFolder
from ml_assets.reports.picture import Table
from ml_assets.reports.run_rows import span
from ml_assets.store.pipeline_context import Pipeline


def costs(pipeline: Pipeline, session: str) -> dict[str, Any]:
    """Node-hours, GPU-hours, what of them was useful, and their cost where a price is known."""
    uses = session_uses(SessionFolder.of(pipeline.objects, session), pipeline.settings.prices)
    shown = {"machines": markdown(table(uses).markdown())} if uses else {}
    return {**numbers(cost_numbers(uses)), **shown}


def cost_numbers(uses: Sequence[Use]) -> dict[str, float]:
    """``node_hours``, ``gpu_hours``, ``useful_share``, and ``cost`` where a price is known."""
    parts = total([use.split for use in uses])
    time = sum(parts.values())
    cost = added(use.cost for use in uses)
    return {
        "node_hours": time / HOUR,
        "gpu_hours": sum(use.paid * use.usage.held.gpus_per_node for use in uses) / HOUR,
        "useful_share": parts["useful"] / time if time else 0.0,
        **({} if cost is None else {"cost": float(rounded(cost, 6))}),
    }


def table(uses: Sequence[Use]) -> Table:
    """Machine time and its cost, by what it was used for."""
    parts = total([use.split for use in uses])
    time = sum(parts.values())
    rows = [_row(part, parts[part], time, uses) for part in PARTS if parts[part]]
    words = (
        "Time of machines from the request to their end, over all attempts of the session. Time "
        "in a queue costs nothing."
    )
    return Table("What the machines were used for", words, ["", "time", "share", "cost"], rows)


def _row(part: Part, time: int, whole: int, uses: Sequence[Use]) -> list[str]:
    cost = added(of_time(use.split[part], use.node_hour) for use in uses)
    paid = "–" if part == "queued" else in_words(cost)
    return [part, span(time / 1e6), f"{time / whole:.1%}", paid]
