"""Tables that stand on more than one page: what a release changed, and which attempts were lost."""

from collections.abc import Sequence

from ml_assets.errors import counted
from ml_assets.reports.picture import Table
from ml_assets.spec.records import ReleaseChanges
from ml_assets.spec.training_program import World
from ml_assets.spec.training_program.events import EndKind, Lost

CHANGES = 60
_BUDGETS: dict[EndKind, str] = {
    "error": "an error of its own",
    "infrastructure": "taken away",
    "start": "never began",
}
_NOTHING = "–"


def changes_table(found: ReleaseChanges | None) -> Table:
    """Return what differs from the release before."""
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


def lost_attempts(lost: Sequence[Lost]) -> Table:
    """The attempts that ended without a result: why, where, and what went on instead."""
    return Table(
        "Attempts that were lost",
        "Each continued from the last whole checkpoint.",
        ["attempt", "cause", "kind", "what happened", "exit code", "pod", "node", "went on with"],
        [_row(one) for one in lost],
    )


def _row(one: Lost) -> list[str]:
    return [
        str(one.attempt or _NOTHING),
        one.cause,
        _BUDGETS[one.kind] if one.kind else _NOTHING,
        one.what or _NOTHING,
        str(one.exit_code or _NOTHING),
        one.pod or _NOTHING,
        one.node or _NOTHING,
        _world(one.goes_on) + (f", without {', '.join(one.avoid)}" if one.avoid else ""),
    ]


def _world(world: World) -> str:
    spread = counted(world.processes, "process")
    return f"{world.nodes} nodes, {spread}" if world.nodes > 1 else spread
