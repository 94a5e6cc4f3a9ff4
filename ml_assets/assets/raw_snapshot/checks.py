"""The check ``schema`` of a raw snapshot: columns added, removed, retyped, reordered, by name."""

from collections.abc import Mapping, Sequence

import dagster as dg

from ml_assets.adapters.check_outcome import CheckOutcome
from ml_assets.errors import counted
from ml_assets.spec.schema_change import Noted, changes_in_words, column_changes
from ml_assets.spec.sources import SourceSpec

CHECK = "schema"
_ORDERED = ("csv", "parquet")
"""Formats in which columns have an order; a database and JSON lines have none."""
KINDS = ("added", "removed", "retyped", "reordered")


def schema_check_spec(key: dg.AssetKey) -> dg.AssetCheckSpec:
    """Declare the check; it need not block: a source with other columns is never published."""
    words = "Whether the source has the columns that it declares, of these types, in this order"
    return dg.AssetCheckSpec(CHECK, asset=key, description=words)


def as_declared(noted: Noted, source: SourceSpec) -> CheckOutcome:
    """The check of a source that could be read: its columns are those declared, in any order."""
    declared = list(source.columns)
    ordered = noted.columns if source.kind == "files" and source.format in _ORDERED else ()
    changes = next(filter(None, (column_changes(names, declared) for names in ordered)), {})
    if noted.said and not changes:
        return CheckOutcome(CHECK, False, False, _named({}), "\n".join(dict.fromkeys(noted.said)))
    if not changes:
        said = f"{counted(len(source.columns), 'column')}, as declared"
        return CheckOutcome(CHECK, True, False, _named({}), said)
    return CheckOutcome(
        CHECK,
        False,
        False,
        _named(changes),
        f"{changes_in_words(changes)}. Columns are matched by name, so the table is right; its "
        "origin writes them in another order than before.",
    )


def changed(changes: Mapping[str, Sequence[str]]) -> CheckOutcome:
    """The check of a source that could not be read as declared."""
    said = f"{changes_in_words(changes)}. Nothing was published."
    return CheckOutcome(CHECK, False, True, _named(changes), said)


def _named(changes: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {kind: ", ".join(changes.get(kind, ())) or "none" for kind in KINDS}
