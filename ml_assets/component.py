"""TrainingPipeline: the Dagster component that turns a spec into assets, checks and resources."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import BaseModel

from ml_assets.adapters.run_config import environment_fields
from ml_assets.assets.derived_table.asset import derived_table
from ml_assets.assets.drift_report.asset import drift_report
from ml_assets.assets.evaluation_report.asset import evaluation_report
from ml_assets.assets.feature_set.asset import feature_set
from ml_assets.assets.raw_snapshot.asset import raw_snapshot
from ml_assets.assets.raw_snapshot.readers.listing import arrived_until
from ml_assets.assets.released_model.asset import released_model
from ml_assets.assets.released_model.checks import gates
from ml_assets.assets.trained_model.asset import trained_model
from ml_assets.assets.trained_model.checks import sanity
from ml_assets.assets.training_set.asset import encode_ahead, training_set
from ml_assets.assets.validated_table.asset import validated_table
from ml_assets.automation.declare_sensors import drift_sensors, sensors
from ml_assets.automation.freshness import bounded_sources, freshness_checks, freshness_sensor
from ml_assets.automation.jobs import pipeline_jobs, rollback_job
from ml_assets.automation.late_runs import late_runs_check, late_runs_sensor, runs_by_itself
from ml_assets.automation.resume_drill import drill_check, drill_job, drill_schedules
from ml_assets.automation.schedules import schedules
from ml_assets.automation.search_starts import search_schedules
from ml_assets.errors import SpecError
from ml_assets.load_extras import load_extras
from ml_assets.settings import read_settings
from ml_assets.spec.load import OWN_ASSETS
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.search import load_search
from ml_assets.spec.team_modules import import_file
from ml_assets.store.pipeline_context import Pipeline

_SHOWING: ContextVar[bool] = ContextVar("showing", default=False)


@contextmanager
def showing() -> Iterator[None]:
    """Build what the UI shows: of a calendar that has passed, only what has arrived is missing."""
    token = _SHOWING.set(True)
    try:
        yield
    finally:
        _SHOWING.reset(token)


class PipelineScaffolder(dg.Scaffolder[Any]):
    """``dg scaffold defs ml_assets.component.TrainingPipeline NAME``, as ``ml-assets new NAME``."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        from ml_assets.scaffold.folder import write_pipeline
        from ml_assets.scaffold.labelled_table import sample_table

        path = request.target_path
        write_pipeline(path.parent, path.name, read_settings().sources, sample_table())


@dg.scaffold_with(PipelineScaffolder)
class TrainingPipeline(dg.Component):
    """A model pipeline declared in one spec: sources, contract, features, model, gates, release."""

    def __init__(self, spec: PipelineSpec, folder: Path) -> None:
        self.spec = spec
        self.folder = folder

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """The spec itself is the schema of ``attributes``: no mirror class to keep in step."""
        return PipelineSpec

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Any:
        assert isinstance(attributes, PipelineSpec)
        path = Path(context.path)
        return cls(attributes, path if path.is_dir() else path.parent)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        return declared_in(self.folder, self.spec)


def declared_in(folder: Path, spec: PipelineSpec) -> dg.Definitions:
    """All that a pipeline's folder declares: what its spec says, and the team's own assets."""
    settings = read_settings()
    pipeline = Pipeline(spec, folder, settings, search=load_search(folder, spec))
    if _SHOWING.get() and not pipeline.on_cluster:  # there every run is a pod that loads this
        until = arrived_until(spec, settings.sources, datetime.now(UTC))
        pipeline = replace(pipeline, shown_until=until)
    return dg.Definitions.merge(build_pipeline(pipeline), own_assets(folder, spec.name))


def own_assets(folder: Path, pipeline: str) -> dg.Definitions:
    """The assets and checks that a team declares in ``assets.py`` beside its spec."""
    if not (folder / OWN_ASSETS).is_file():
        return dg.Definitions()
    module = import_file(folder, OWN_ASSETS, pipeline)
    assets = dg.load_assets_from_modules([module])
    checks = dg.load_asset_checks_from_modules([module])
    for one in (*assets, *checks):
        if isinstance(one, dg.AssetsDefinition) and one.is_executable:
            _require_plain_config(one)
    _require_no_gates(assets, checks, pipeline)
    return dg.Definitions(assets=assets, asset_checks=checks)


def _require_no_gates(
    assets: Iterable[object], checks: Iterable[dg.AssetChecksDefinition], pipeline: str
) -> None:
    """A blocking check looks like a gate, but runs ask none of a team's: it would let all pass."""
    own = {key for one in assets if isinstance(one, dg.AssetsDefinition) for key in one.keys}
    own |= {one.key for one in assets if isinstance(one, dg.AssetSpec | dg.SourceAsset)}
    for check in (check for one in checks for check in one.check_specs):
        if check.blocking and check.asset_key not in own:
            raise SpecError(
                f"{pipeline}: {OWN_ASSETS}: the check {check.name!r} of "
                f"{check.asset_key.to_user_string()} is blocking, and that asset is not declared "
                "in this file. Runs of the pipeline do not ask this check, so it holds back no "
                "model. State it as a gate below `gates:` in defs.yaml, or leave out "
                "`blocking=True`: then it only reports."
            )


def _require_plain_config(asset: dg.AssetsDefinition) -> None:
    """Whoever launches a run would read the orchestrator's keys through a team's field as well."""
    for node in asset.node_def.iterate_node_defs():  # an op; or a graph, and all that is in it
        schema = node.config_schema
        found = list(environment_fields(schema.config_type)) if schema else []
        if found:
            raise SpecError(
                f"{OWN_ASSETS}: {node.name} takes {', '.join(found)} from a run's configuration, "
                "where {env: NAME} reads any environment variable of the process. Derive its "
                "configuration from ml_assets.adapters.run_config.RunConfig: "
                "`config_schema=Mine.form()`, and `Mine.of(context)` where it is read."
            )


def _search(pipeline: Pipeline) -> list[dg.AssetsDefinition]:
    """The study of a pipeline that has a search; no other one loads its code."""
    if pipeline.search is None:
        return []
    from ml_assets.assets.hyperparameter_search.asset import hyperparameter_search

    return [hyperparameter_search(pipeline)]


def build_pipeline(pipeline: Pipeline) -> dg.Definitions:
    """The asset graph, checks, jobs, schedules and sensors of one pipeline."""
    spec = pipeline.spec
    jobs = pipeline_jobs(pipeline)
    watched = [late_runs_sensor(pipeline, jobs.refresh)] if runs_by_itself(spec.automation) else []
    drilled = [drill_check(pipeline)] if spec.automation.resume_drill else []
    dated = [freshness_sensor(pipeline)] if bounded_sources(pipeline) else []
    extras = load_extras(spec)
    drills = [drill_job(pipeline)] if drilled else []
    return dg.Definitions(
        assets=[
            *(raw_snapshot(pipeline, name) for name in spec.sources),
            *(validated_table(pipeline, name) for name in spec.sources),
            *(derived_table(pipeline, name) for name in spec.tables),
            feature_set(pipeline, encode_ahead),
            training_set(pipeline),
            *_search(pipeline),
            trained_model(pipeline),
            evaluation_report(pipeline),
            released_model(pipeline),
            *([drift_report(pipeline)] if spec.drift else []),
            *(asset for extra in extras for asset in extra.assets(pipeline)),
        ],
        asset_checks=[
            *sanity(pipeline),
            gates(pipeline),
            *(check for extra in extras for check in extra.checks(pipeline)),
            *([late_runs_check(pipeline)] if watched else []),
            *drilled,
            *freshness_checks(pipeline),
        ],
        jobs=[
            *jobs.all,
            rollback_job(pipeline),
            *drills,
            *(job for extra in extras for job in extra.jobs(pipeline)),
        ],
        schedules=[
            *schedules(pipeline, jobs.refresh),
            *(schedule for job in drills for schedule in drill_schedules(pipeline, job)),
            *search_schedules(pipeline, jobs.search),
        ],
        sensors=[
            *sensors(pipeline, jobs),
            *drift_sensors(pipeline, jobs),
            *watched,
            *dated,
            *(sensor for extra in extras for sensor in extra.sensors(pipeline)),
        ],
    )
