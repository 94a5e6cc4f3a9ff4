"""A pipeline that cannot be loaded: one asset with a failed check that says why; others run."""

import re

import dagster as dg

from ml_assets.spec.base import digest_of

ASSET, CHECK = "cannot_be_loaded", "loads"
SECONDS_BETWEEN_TICKS = 60


def broken_pipeline(folder_name: str, said: str) -> dg.Definitions:
    """Return what stands in the lineage in the place of a pipeline.

    Args:
        said: what is wrong, with file and line.
    """
    name = re.sub(r"\W", "_", folder_name)
    key = dg.AssetKey([name, ASSET])
    asset = dg.AssetSpec(
        key,
        group_name=name,
        description=f"The pipeline `{folder_name}` cannot be loaded; nothing of it runs until this"
        f" is fixed; all other pipelines run.\n```\n{said}\n```\nFix it, then reload the"
        f" definitions. `ml-assets check {folder_name}` lists every mistake.",
        tags={"pipeline": name},
    )
    return dg.Definitions(
        assets=[asset], asset_checks=[_check(key, said)], sensors=[_tell(key, said)]
    )


def _check(key: dg.AssetKey, said: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=key, name=CHECK, description="Whether the pipeline can be loaded.")
    def loads() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False, description=said)

    return loads


def _tell(key: dg.AssetKey, said: str) -> dg.SensorDefinition:
    """Turns the check red by itself: a definition has no state, only an event shows as one."""
    mark = digest_of(said)

    @dg.sensor(
        name=f"{key.path[0]}__{CHECK}",
        description="Shows that the pipeline cannot be loaded, and why.",
        minimum_interval_seconds=SECONDS_BETWEEN_TICKS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        tags={"pipeline": key.path[0]},
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        failed = dg.AssetCheckEvaluation(key, CHECK, passed=False, description=said)
        told = [] if context.cursor == mark else [failed]
        return dg.SensorResult(skip_reason=said, cursor=mark, asset_events=told)

    return evaluate
