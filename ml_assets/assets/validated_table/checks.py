"""The checks of a validated table: one for each expectation of its contract, and its volume."""

from typing import TYPE_CHECKING

import dagster as dg

from ml_assets.adapters.check_outcome import CheckOutcome
from ml_assets.assets.validated_table.volume import CHECK_NAME, volume_words
from ml_assets.spec.sources import SourceSpec

if TYPE_CHECKING:
    from ml_assets.assets.validated_table.contract.results import ExpectationResult
    from ml_assets.assets.validated_table.contract.suite import Contract


def contract_checks(
    key: dg.AssetKey, contract: "Contract", source: SourceSpec
) -> list[dg.AssetCheckSpec]:
    """The asset checks of a contract, one for each expectation; a critical one blocks."""
    return [
        dg.AssetCheckSpec(
            e.check_name,
            asset=key,
            blocking=e.severity == "critical",
            description=f"{e.type} {dict(e.kwargs)} ({e.severity})",
        )
        for e in contract.expectations
    ] + _volume_check(key, source)


def _volume_check(key: dg.AssetKey, source: SourceSpec) -> list[dg.AssetCheckSpec]:
    if source.volume is None:
        return []
    blocking = source.volume.severity == "critical"
    words = f"Rows within {source.volume.within:.0%} of {volume_words(source.volume)}"
    return [dg.AssetCheckSpec(CHECK_NAME, asset=key, blocking=blocking, description=words)]


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
