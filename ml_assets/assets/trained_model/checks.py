"""The sanity checks: asset checks on training_set, in a step that training waits for."""

from collections.abc import Iterator

import dagster as dg

from ml_assets.adapters.declare_asset import asset_key, pool
from ml_assets.adapters.resources import LauncherResource, StoresResource
from ml_assets.adapters.step import reported
from ml_assets.assets.trained_model.sanity import checks_of, examine
from ml_assets.graph.inputs import require_record
from ml_assets.spec.sanity import SANITY_CHECKS, SanityCheck
from ml_assets.store.pipeline_context import Pipeline


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
