"""Broken rows in two weeks: one is published without them, of the other nothing is.

No row is lost: those that are kept back lie in quarantine, each with its reason.
"""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ml_assets.actions.read_table import read_table
from ml_assets.assets.validated_table.quarantine import REASON
from ml_assets.errors import StorageError
from ml_assets.extras.demo.faults.ground import Ground, InjectionResult
from ml_assets.store.layout import Address, read_record
from ml_assets.store.snapshots import MAIN

SOURCE = "flights"
_WEEKS = 3
_BROKEN = 5
"""Rows of the second week; up to one in a thousand may be out of range."""
Row = dict[str, str]


def plant(ground: Ground) -> InjectionResult:
    """Break rows of two weeks as they land, and see where every row went."""
    ground.prepare(_that_takes_in_only)
    landing = ground.own_sources(_WEEKS) / "landing" / SOURCE
    _, some, many = sorted(landing.glob("*.csv"))
    rows = {week.stem: _spoil(week, how) for week, how in ((some, _few), (many, _most))}
    ran = ground.command("run", ground.pipeline, "--through", "validated_table")
    published = _published(ground, some.stem)
    quarantined = _kept(ground, "quarantine", some.stem)
    rejected = _kept(ground, "rejected", many.stem)
    nothing = _published(ground, many.stem) is None
    held = (
        published == rows[some.stem] - _BROKEN
        and len(quarantined) == _BROKEN
        and nothing
        and len(rejected) == rows[many.stem]
        and ran.code == 1
    )
    reason = ", ".join(sorted(set(quarantined))) or "no reason"
    return InjectionResult(
        held,
        f"in the week {some.stem} {_BROKEN} flights of a negative distance, in the week"
        f" {many.stem} half of them from an airport that there is not",
        f"the contract of {SOURCE}: {len(quarantined)} rows quarantined for {reason}",
        f"{some.stem}: {published or 0:,} of {rows[some.stem]:,} rows published;"
        f" {many.stem}: {'nothing' if nothing else 'SOMETHING'} published, {len(rejected):,} rows"
        " kept",
        ground.look(
            f"data read {ground.pipeline}/quarantine/{SOURCE} --partition {some.stem}",
            f"data read {ground.pipeline}/rejected/{SOURCE} --partition {many.stem}",
        ),
    )


def _that_takes_in_only(spec: dict[str, Any]) -> None:
    """The weeks of three landed files."""


def _few(number: int, row: Row) -> None:
    if number < _BROKEN:
        row["distance"] = "-100"


def _most(number: int, row: Row) -> None:
    if number % 2:
        row["origin"] = "ZZZ"  # no airport of New York


def _spoil(file: Path, change: Callable[[int, Row], None]) -> int:
    """Change rows of a file in place; how many it has."""
    with file.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    for number, row in enumerate(rows):
        change(number, row)
    with file.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return len(rows)


def _published(ground: Ground, week: str) -> int | None:
    """Rows of a week's validated table; None where there is none."""
    store, address = ground.place().store, Address(ground.pipeline, "validated_table", SOURCE, week)
    record = read_record(store, store.resolve(MAIN), address)
    return record.rows if record else None


def _kept(ground: Ground, where: str, week: str) -> list[str]:
    """The reasons of the rows that were kept back, one each."""
    key = f"{ground.pipeline}/{where}/{SOURCE}"
    try:
        table = read_table(key, week, settings=ground.settings)
    except StorageError:
        return []
    return table.collect()[REASON].to_list()
