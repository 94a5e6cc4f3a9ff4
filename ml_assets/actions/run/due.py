"""Tells what `ml-assets run` would make now, without making it."""

from collections.abc import Collection, Iterator

from ml_assets.actions.run.fresh_training import FreshTraining
from ml_assets.actions.run.run import Request
from ml_assets.assets.raw_snapshot.sources import Sources
from ml_assets.assets.training_set.window import require_window
from ml_assets.automation.planner.candidate_runs import CANARY, DRIFT, before_the_model
from ml_assets.automation.planner.graph_nodes import plan_data, records_by_address
from ml_assets.automation.planner.landed import landed
from ml_assets.automation.planner.plan import MAKE, Plan
from ml_assets.automation.planner.selection import model_run
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion
from ml_assets.spec.stages import DRIFT_STAGE, MODEL_STAGES, STAGES
from ml_assets.store.pipeline_context import Pipeline

_THEN = "then"


def due_now(pipeline: Pipeline, request: Request) -> list[str]:
    """Return what a run would make now and what it waits for, a line each, with why.

    Sources are looked at as a run does it: files are listed, tables of databases are read. While
    data is due, the model is looked at with the rows of now: what is due then is due anyway, and
    the rest where its rows change.

    Raises:
        MlAssetsError: a run would end with it at once.
    """
    wanted = STAGES[: STAGES.index(request.through) + 1] if request.through else STAGES
    require_window(pipeline, request.as_of, wanted)
    waiting, data = _data_due(pipeline, wanted)
    if "training_set" not in wanted:
        return [*waiting, *data]
    if not data:
        return [*waiting, *_model_due(pipeline, request, wanted)]
    return [*waiting, *data, *_model_later(pipeline, request, wanted)]


def _model_later(pipeline: Pipeline, request: Request, wanted: Collection[str]) -> list[str]:
    """What of the model is made after the data that is due."""
    model = [stage for stage in MODEL_STAGES if stage in wanted]
    state = pipeline.now()
    if state.record(state.address(model[0])) is None:
        return [f"{_THEN}  {', '.join(model)}: never made"]
    anyway = [_later(line) for line in _model_due(pipeline, request, wanted)]
    named = [stage for stage in model if not any(f"/{stage}:" in line for line in anyway)]
    rest = [f"{_THEN}  {', '.join(named)}: where their rows change"] if named else []
    return [*rest, *anyway]


def _later(line: str) -> str:
    return f"{_THEN}{line.removeprefix(MAKE)}" if line.startswith(MAKE) else line


def _data_due(pipeline: Pipeline, wanted: Collection[str]) -> tuple[list[str], list[str]]:
    """What is still being written, and what is made of the rest."""
    records = records_by_address(pipeline.store, pipeline.name)
    arrived = landed(pipeline, Sources(pipeline.settings), records)
    found, away = plan_data(pipeline, arrived, records)
    if away:
        raise away
    return [f"wait  {said}" for said in arrived.waiting], _made(found, wanted)


def _model_due(pipeline: Pipeline, request: Request, wanted: Collection[str]) -> list[str]:
    lines = [] if request.through else [*_before_the_model(pipeline)]
    fresh = None
    if "trained_model" in wanted:
        waits = FreshTraining(pipeline.settings.home, pipeline.name)
        fresh, said = waits.expected(request.fresh, request.as_of, request.epochs)
        lines += [f"note  {said}"] if said else []
    due = model_run(
        pipeline, as_of=request.as_of, fresh=fresh, epochs=request.epochs, stages=tuple(wanted)
    )
    if "trained_model" in {item.node.address.stage for item in due.plan.due} & {*wanted}:
        aside = pipeline.with_winner(due.as_of).set_aside
        lines += [f"note  {aside}"] if aside else []
    lines += _made(due.plan, wanted)
    parts = {"sanity checks": due.sanity, "gates": due.gates}
    lines += [f"{MAKE}  {part}: {why}" for part, why in parts.items() if why]
    return lines + (
        [f"refuse  {pipeline.name}/released_model: {due.refusal}"] if due.refusal else []
    )


def _before_the_model(pipeline: Pipeline) -> Iterator[str]:
    """What is due before another model is made, and the model in canary that waits."""
    for place, step in before_the_model(pipeline):
        if not isinstance(step, str):
            yield f"{MAKE}  {DRIFT_STAGE if place == DRIFT else place}: {step.reason}"
        elif place == CANARY and champion(read(pipeline.store, pipeline.name), "canary"):
            yield f"wait  {CANARY}: {step}"


def _made(plan: Plan, wanted: Collection[str]) -> list[str]:
    items = tuple(item for item in plan.due if item.node.address.stage in wanted)
    return Plan(items).summary()
