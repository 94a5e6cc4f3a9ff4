"""The checks of a validated table: each expectation of its contract, its volume, its placement."""

from typing import TYPE_CHECKING

import dagster as dg

from ml_assets.adapters.check_outcome import CheckOutcome
from ml_assets.assets.validated_table import placement, volume
from ml_assets.assets.validated_table.placement import placing_column
from ml_assets.assets.validated_table.volume import volume_words
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.sources import SourceSpec

if TYPE_CHECKING:
    from ml_assets.assets.validated_table.contract.results import ExpectationResult
    from ml_assets.assets.validated_table.contract.suite import Contract


def contract_checks(
    key: dg.AssetKey, contract: "Contract", spec: PipelineSpec, source_name: str
) -> list[dg.AssetCheckSpec]:
    """The asset checks of a table, one for each expectation; a critical one blocks."""
    source, time = spec.sources[source_name], placing_column(spec, source_name)
    return [
        dg.AssetCheckSpec(
            e.check_name,
            asset=key,
            blocking=e.severity == "critical",
            description=f"{e.type} {dict(e.kwargs)} ({e.severity})",
        )
        for e in contract.expectations
    ] + [*_volume_check(key, source), *_placement_check(key, time)]


def _volume_check(key: dg.AssetKey, source: SourceSpec) -> list[dg.AssetCheckSpec]:
    if source.volume is None:
        return []
    blocking = source.volume.severity == "critical"
    words = f"Rows within {source.volume.within:.0%} of {volume_words(source.volume)}"
    return [dg.AssetCheckSpec(volume.CHECK_NAME, asset=key, blocking=blocking, description=words)]


def _placement_check(key: dg.AssetKey, time: str | None) -> list[dg.AssetCheckSpec]:
    if time is None:
        return []
    words = f"Each row's `{time}` lies in the partition that the row was delivered with"
    return [dg.AssetCheckSpec(placement.CHECK_NAME, asset=key, description=words)]


def contract_check(result: "ExpectationResult") -> CheckOutcome:
    critical = result.severity == "critical"
    return CheckOutcome(
        result.check_name,
        result.passed,
        critical,
        {
            "rows_failed": result.rows_failed,
            "observed": str(result.observed),
            **result.details,
        },
        result.reason,
    )
