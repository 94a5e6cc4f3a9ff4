"""What differs from the release before, as a table."""

from ml_assets.reports.picture import Table
from ml_assets.spec.records import ReleaseChanges

CHANGES = 60


def changes_table(found: ReleaseChanges | None) -> Table:
    """What differs from the release before."""
    name = "What changed since the last release"
    if found is None:
        return Table(name, "Nothing was released before this model.", ["what"], [])
    rows = [
        [f"{one.group}: {one.name}", one.before or "–", one.after or "–"]
        for one in found.changes[:CHANGES]
    ]
    words = f"Against model {found.since[:12]}. Metrics are of each model's own holdout."
    if not rows:
        words = f"Nothing: the same spec, data and results as model {found.since[:12]}."
    return Table(name, words, ["what", "before", "now"], rows)
