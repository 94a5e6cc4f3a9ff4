"""Tells what `ml-assets run` would make now, without making it."""

from ml_assets.assets.raw_snapshot.sources import Sources
from ml_assets.automation.planner.candidate_runs import DRIFT, before_the_model
from ml_assets.automation.planner.graph_nodes import plan_data, records_by_address
from ml_assets.automation.planner.landed import landed
from ml_assets.automation.planner.plan import MAKE, Plan
from ml_assets.automation.planner.selection import model_run
from ml_assets.errors import MlAssetsError
from ml_assets.spec.stages import DRIFT_STAGE
from ml_assets.store.pipeline_context import Pipeline

_LATER = "then  the stages of the model, if their rows changed"


def due_now(pipeline: Pipeline) -> list[str]:
    """Return what `ml-assets run` would make now and what it waits for, a line each, with why.

    Sources are looked at as a run does it: files are listed, tables of databases are read. While
    data is due nobody can tell whether the model is, which hangs on what the data will be.
    """
    try:
        waiting, data = _data_due(pipeline)
        return [*waiting, *([*data, _LATER] if data else _model_due(pipeline))]
    except MlAssetsError as error:
        return [f"stop  {error}"]


def _data_due(pipeline: Pipeline) -> tuple[list[str], list[str]]:
    """What is still being written, and what is made of the rest."""
    records = records_by_address(pipeline.store, pipeline.name)
    arrived = landed(pipeline, Sources(pipeline.settings), records)
    found, away = plan_data(pipeline, arrived, records)
    if away:
        raise away
    return [f"wait  {said}" for said in arrived.waiting], _made(found)


def _model_due(pipeline: Pipeline) -> list[str]:
    lines = [
        f"{MAKE}  {DRIFT_STAGE if place == DRIFT else place}: {step.reason}"
        for place, step in before_the_model(pipeline)
        if not isinstance(step, str)
    ]
    due = model_run(pipeline)
    lines += _made(due.plan)
    parts = {"sanity checks": due.sanity, "gates": due.gates}
    return lines + [f"{MAKE}  {part}: {why}" for part, why in parts.items() if why]


def _made(plan: Plan) -> list[str]:
    return [line for line in plan.summary() if line.startswith(MAKE)]
