"""What struck, and what came of it: a line of JSON for each round, kept beside the benchmarks'."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "faults.jsonl"
FOLDERS = re.compile(r"/[^\s:]*/(?:faults-[^/\s]+/[a-z]+-\d+(?=/)|\.venv/bin/|site-packages/)")
"""Of this machine: a round's home, a program's, a package's."""
SILENT = "(a signal came before it said a word)"
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_OF_LOG = re.compile(
    r"^\S+ \S+ \S+ - dagster\S* - [A-Z]+ - (?:\S+ - )*|^[A-Z]+:\w+:|^(?:\w+\.)+\w+: "
)
_EXPLAINS = re.compile(
    r"\b(lost|killed|died|dead|interrupted|started again|resumes?|cannot be|refused|no space"
    r"|stopped|signal|full|evicted|preempted|another command|is away|already)\b"
)


@dataclass
class Strike:
    """One fault that struck."""

    fault: str
    at: float
    """Seconds after the round was begun."""
    together: int = 1
    """Faults that struck at one time."""
    seconds: float | None = None
    """That the work took longer to its next mark than it does undisturbed; None: not alone."""
    steps: int | None = None
    """Of a training, that were taken again for it; None: not alone."""
    seen: str = ""
    """The sentence that people were shown."""
    broken: list[str] = field(default_factory=list)
    """What did not hold when it was looked at next."""


@dataclass
class Played:
    """One round."""

    arena: str
    seed: int
    strikes: list[Strike]
    broken: list[str] = field(default_factory=list)
    """What did not hold at its end."""
    commit: str = ""
    product: str = ""
    """The tree of `ml_assets/` in that commit: others that changed only tests and docs share it."""
    day: str = ""
    machine: str = ""

    @property
    def held(self) -> bool:
        return not self.broken and not any(strike.broken for strike in self.strikes)


def remember(file: Path, played: Played) -> None:
    """Append a round, in one write: others may do so at the same time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as results:
        said = json.dumps(_set(played)).replace(f"{ROOT}/", "").replace(str(ROOT), ".")
        results.write(FOLDERS.sub("", said) + "\n")


def _set(record: Played | Strike) -> dict[str, Any]:
    """The fields that say something."""
    found = {name: value for name, value in vars(record).items() if value not in (None, "", [])}
    if isinstance(record, Played):
        found["strikes"] = [_set(strike) for strike in record.strikes]
    return found


def recall(file: Path) -> list[Played]:
    """All rounds so far, oldest first; none where there is no file."""
    return [*_read(file.read_text().splitlines())] if file.exists() else []


def _read(lines: Iterable[str]) -> Iterator[Played]:
    for line in lines:
        found = json.loads(line)
        found["strikes"] = [Strike(**strike) for strike in found["strikes"]]
        yield Played(**found)


def sentence(said: str) -> str:
    """The last line that explains it; empty where people had to be told nothing.

    Indented lines are those of a stack; before a message of Dagster's log stand its time and run.
    """
    plain = _COLORS.sub("", said).splitlines()
    lines = [_OF_LOG.sub("", line).strip() for line in plain if line[:1].strip()]
    beside = ("[pass]", ">", "warning: overfitting", "overfitting", SILENT)
    shown = (line for line in lines if not line.startswith(beside))
    return ([line for line in shown if _EXPLAINS.search(line)] or [""])[-1][:200]
