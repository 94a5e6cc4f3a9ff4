"""How often the rows of a holdout have judged models: read off the decisions in the ledger."""

from collections.abc import Sequence

from ml_assets.spec.records import HoldoutRows, HoldoutUse, LedgerEntry


def holdout_use(entries: Sequence[LedgerEntry], model: str, rows: HoldoutRows) -> HoldoutUse:
    """The other models that were decided on with rows of this holdout, before this one was.

    A refusal counts as a release does: both tell whoever tries again. Windows that share a
    partition share rows; where the data is not cut in time, the holdouts are the same or they are
    taken for different ones. A report that no gate judged is not in the ledger and not counted.

    Args:
        entries: the ledger of the pipeline, oldest first.
    """
    sharing: set[str] = set()
    unknown: set[str] = set()
    for entry in entries:
        decision = entry.decision
        if decision is None:
            continue
        if entry.model == model:
            break
        if decision.holdout is None:
            unknown.add(entry.model)
        elif _share(decision.holdout, rows):
            sharing.add(entry.model)
    return HoldoutUse(models=len(sharing), unknown=len(unknown - sharing))


def _share(one: HoldoutRows, other: HoldoutRows) -> bool:
    if one.digest == other.digest:
        return True
    if not (one.first and other.first):
        return False
    return one.first <= other.last and other.first <= one.last
