"""Three small steps as plain functions, and the clock of a process that takes them again and again.

Every tool of ``trivial.py`` runs these functions, or the same steps in its own words.
"""

import csv
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

Rows = list[dict[str, str]]


def read(table: str) -> Rows:
    """The rows of a file."""
    with Path(table).open(newline="") as file:
        return list(csv.DictReader(file))


def validate(rows: Rows) -> Rows:
    """Those with an id."""
    return [row for row in rows if row["id"]]


def features(rows: Rows) -> Rows:
    """The numbers of each row."""
    return [{"id": row["id"], "size": row["size"]} for row in rows]


def change(table: str) -> None:
    """Another row, so that no tool may keep what it made of the last one."""
    size = time.monotonic_ns() % 10**9
    Path(table).write_text(f"id,size,measured_at,late\n1,{size}.5,2024-01-01T00:00:00Z,true\n")


def take(run: Callable[[], object], table: str, turns: int) -> None:
    """Print the (CPU, wall) seconds of each turn, children's too, as the last line."""
    found: list[tuple[float, float]] = []
    for _ in range(turns):
        change(table)
        cpu, wall = sum(os.times()[:4]), time.monotonic()
        run()
        found.append((sum(os.times()[:4]) - cpu, time.monotonic() - wall))
    print(json.dumps(found), flush=True)
