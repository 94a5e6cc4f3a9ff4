"""Reports a check as one evaluation per run, however many partitions the run has.

An event for each partition would cost more than the check: a range of a year has thousands. So the
worst partition comes first, and a table in the metadata names all of them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

import dagster as dg

from ml_assets.errors import counted

Verdict = Literal["pass", "warn", "fail", "not judged"]
_ASKED = "asked"
PARTITIONS = "partitions"
"""Metadata of an evaluation: a row for each partition that it is about."""


@dataclass(frozen=True)
class CheckOutcome:
    """One expectation's verdict on one partition."""

    name: str
    passed: bool
    critical: bool
    metadata: Mapping[str, Any]
    reason: str

    @property
    def verdict(self) -> Verdict:
        """A check that is not critical warns."""
        if self.passed:
            return "pass"
        return "fail" if self.critical else "warn"


@dataclass(frozen=True)
class PartitionVerdict:
    """Holds what an evaluation says of one of its partitions."""

    partition: str
    verdict: Verdict
    said: str


def over_partitions(
    outcomes: Mapping[str | None, CheckOutcome], published: Collection[str | None]
) -> CheckOutcome:
    """The outcome of a check in a run: the worst partition's, with the verdicts on all.

    Args:
        outcomes: partition -> what the check said of it; None for a table that has none.
        published: every partition that was published; a check may judge a sample of them.
    """
    worst = max(outcomes, key=lambda key: _badness(outcomes[key]))
    shown = outcomes[worst]
    if worst is None:
        return shown
    verdicts = [one.verdict for one in outcomes.values()]
    count = {"judged": len(verdicts), "failed": verdicts.count("fail")}
    count["warned"] = verdicts.count("warn")
    reason = shown.reason if shown.passed else f"[{worst}] {shown.reason}"
    if count["failed"] + count["warned"] > 1:
        reason += f" ({count['failed'] + count['warned']} of {counted(len(verdicts), 'partition')})"
    rows = [PartitionVerdict(str(key), one.verdict, one.reason) for key, one in outcomes.items()]
    rows += [
        PartitionVerdict(str(key), "not judged", "") for key in published if key not in outcomes
    ]
    table = dg.MetadataValue.table(
        records=[dg.TableRecord(asdict(row)) for row in sorted(rows, key=lambda r: r.partition)],
        schema=dg.TableSchema([dg.TableColumn(one.name) for one in fields(PartitionVerdict)]),
    )
    return replace(shown, reason=reason, metadata={**shown.metadata, **count, PARTITIONS: table})


def whole_check(asset_key: dg.AssetKey, check: CheckOutcome) -> dg.AssetCheckResult:
    """A verdict on an asset, as Dagster is told it."""
    severity = dg.AssetCheckSeverity.ERROR if check.critical else dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(
        asset_key=asset_key,
        check_name=check.name,
        passed=check.passed,
        severity=severity,
        description=check.reason,
        metadata=dict(check.metadata),
    )


def not_asked(key: dg.AssetCheckKey, failed: Sequence[str | None]) -> dg.AssetCheckEvaluation:
    """Return what Dagster is told of a check that a run did not come to.

    Args:
        failed: the steps that failed before it.
    """
    before = ", ".join(filter(None, failed)) or "the run"
    return dg.AssetCheckEvaluation(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=False,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"This check was not asked, because {before} failed before it.",
        metadata={_ASKED: False},
    )


def was_asked(evaluation: dg.AssetCheckEvaluation | None) -> bool:
    """Return whether a check was asked: the evaluation of one that was left out says so."""
    return evaluation is None or _ASKED not in evaluation.metadata


def partition_verdicts(metadata: Mapping[str, Any]) -> Iterator[PartitionVerdict]:
    """Yield what an evaluation says of each of its partitions; nothing where it names none."""
    table = metadata.get(PARTITIONS)
    if isinstance(table, dg.TableMetadataValue):
        for record in table.records:
            row: dict[str, Any] = dict(record.data)
            yield PartitionVerdict(**row)


def _badness(check: CheckOutcome) -> tuple[bool, bool, int]:
    failed = check.metadata.get("rows_failed", 0)
    return not check.passed, check.critical, int(failed)
