"""The sanity checks: asset checks on training_set, in a step that training waits for.

The training program makes them once for each training set, model and code.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key, pool
from ml_assets.adapters.resources import LauncherResource, StoresResource
from ml_assets.adapters.step import StepContext, reported
from ml_assets.errors import NotSane, counted
from ml_assets.graph.inputs import require_record
from ml_assets.spec.sanity import SANITY_CHECKS, Alone, SanityCheck, SanityName, sanity_checks
from ml_assets.spec.training_program import Ref, SanityResult
from ml_assets.store.pipeline_context import Pipeline

if TYPE_CHECKING:
    from ml_assets.launch.launcher import Launcher, SanityJob


def sanity(declared: Pipeline) -> list[dg.AssetChecksDefinition]:
    """One blocking check for each that means something for the model; none for boosted trees."""
    key, names = asset_key(declared, "training_set"), checks_of(declared)
    if not names:
        return []

    @dg.multi_asset_check(
        name=f"{declared.name}__sanity",
        specs=[
            dg.AssetCheckSpec(name, asset=key, blocking=True, description=SANITY_CHECKS[name])
            for name in names
        ],
        can_subset=False,
        pool=pool(declared),
    )
    @reported
    def check(
        context: dg.AssetCheckExecutionContext,
        stores: StoresResource,
        launcher: LauncherResource,
    ) -> Iterator[dg.AssetCheckResult]:
        from ml_assets.assets.trained_model.training_job import data_ref

        pipeline = stores.open(declared)
        data = require_record(pipeline.now(), pipeline.address("training_set"))
        for found in examine(
            context, pipeline, launcher.launcher(pipeline), data_ref(pipeline, data)
        ).checks:
            yield _check_result(key, found)

    return [check]


def _check_result(key: dg.AssetKey, found: SanityCheck) -> dg.AssetCheckResult:
    value = {} if found.value is None else {"value": found.value}
    failed = found.outcome == "failed"
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=found.name,
        passed=found.outcome == "passed",
        severity=dg.AssetCheckSeverity.ERROR if failed else dg.AssetCheckSeverity.WARN,
        description=found.reason,
        metadata={**value, "bound": found.bound},
    )


def checks_of(pipeline: Pipeline) -> tuple[SanityName, ...]:
    """The names of the checks that mean something for the pipeline's model; none for trees."""
    return sanity_checks(pipeline.spec.model, pipeline.spec.label.task)


def sanity_job(pipeline: Pipeline, data: Ref) -> "SanityJob":
    from ml_assets.launch.launcher import SanityJob

    spec = pipeline.spec
    return SanityJob(pipeline.name, spec.model, spec.training, data, spec.cluster, pipeline.network)


def examine(
    context: StepContext,
    pipeline: Pipeline,
    launcher: "Launcher",
    data: Ref,
) -> SanityResult:
    """The checks on a training set and the model that it would train.

    Raises:
        TrainingFailed: the program ended without a result.
    """
    from ml_assets.assets.trained_model.training_job import remember_session, teller
    from ml_assets.launch.session_name import sanity_session

    job = sanity_job(pipeline, data)
    remember_session(context.instance, context.run.run_id, sanity_session(job))
    return launcher.sanity(job, teller(context.log))


def require_sane(
    context: StepContext, pipeline: Pipeline, launcher: "Launcher", data: Ref
) -> Alone | None:
    """Refuse to go on where a check failed, by whatever path: the blocking checks of the training
    set hold up only what runs with them.

    Returns:
        The pace of one process by itself, where it was measured.

    Raises:
        NotSane: a check failed; the message has each one's sentence.
    """
    if not checks_of(pipeline):
        return None
    found = examine(context, pipeline, launcher, data)
    if found.failed:
        raise NotSane(refusal(pipeline.name, found.failed))
    return found.alone


def refusal(pipeline: str, failed: tuple[SanityCheck, ...]) -> str:
    """Return what an operator reads."""
    lines = "\n".join(f"  {check.name}: {check.reason}" for check in failed)
    number = counted(len(failed), "sanity check")
    return f"{pipeline}: training does not begin, for {number} failed:\n{lines}"
