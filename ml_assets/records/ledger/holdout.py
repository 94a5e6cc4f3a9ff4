"""How often the rows of a holdout have judged models: read off the decisions in the ledger."""

from collections.abc import Sequence

from ml_assets.spec.records import Decision, HoldoutRows, HoldoutUse, LedgerEntry


def holdout_use(entries: Sequence[LedgerEntry], model: str, rows: HoldoutRows) -> HoldoutUse:
    """The other models that were decided on with rows of this holdout, before this one was.

    A refusal counts as a release does: both tell whoever tries again. Windows that share a
    partition share rows, and a canary was looked at on the rows of its period; where the data is
    not cut in time, holdouts are the same or are taken for different ones. A report that no gate
    judged is not in the ledger and not counted.

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
        shared = _share(decision, rows)
        if shared is None:
            unknown.add(entry.model)
        elif shared:
            sharing.add(entry.model)
    return HoldoutUse(models=len(sharing), unknown=len(unknown - sharing))


def _share(decision: Decision, rows: HoldoutRows) -> bool | None:
    """Whether a decision rests on some of the rows; None where it does not say what it rests on."""
    if decision.holdout is not None and decision.holdout.digest == rows.digest:
        return True
    seen = decision.canary or decision.holdout
    if seen is None:
        return None
    return bool(seen.first and rows.first) and seen.first <= rows.last and rows.first <= seen.last
