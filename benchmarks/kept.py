"""What a run of a benchmark told, with all that the figures hang on: commit, machine, load."""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Literal

from pydantic import BaseModel

from benchmarks.catalog import HERE, Benchmark
from benchmarks.figures import KEPT

RESULTS = HERE / "results" / "figures"
ROOT = HERE.parent


class Figure(BaseModel):
    """One figure; of several runs the median."""

    name: str
    value: float
    aim: float | None
    """None: it is told for itself, to be read beside the others."""
    at: Literal["most", "least"]
    why: str = ""
    """What stands in the way where it is short."""

    @property
    def holds(self) -> bool:
        if self.aim is None:
            return True
        return self.value <= self.aim if self.at == "most" else self.value >= self.aim


class Result(BaseModel):
    """``results/figures/NAME.json``."""

    benchmark: str
    commit: str
    """Short; with a + where files had changed since."""
    product: str = ""
    """What git calls the folder of the product, short: commits of docs and tests keep it. With a +
    where its files had changed; empty: it was not kept."""
    time: datetime
    machine: str
    load: tuple[float, float]
    """Of the last minute, before and after: how busy others kept the machine, and this."""
    seconds: float
    times: int
    """Runs that the figures are the medians of."""
    missing: tuple[str, ...] = ()
    """Peers that were not installed, so that nothing compares with them."""
    failed: str = ""
    """The last line that it wrote, where it failed: the figures are those until then."""
    figures: tuple[Figure, ...]


def kept(name: str) -> Result | None:
    """The last run of a benchmark; None: there was none."""
    file = RESULTS / f"{name}.json"
    return Result.model_validate_json(file.read_bytes()) if file.is_file() else None


def results() -> dict[str, Result]:
    """Benchmark -> its last run."""
    found = (kept(file.stem) for file in sorted(RESULTS.glob("*.json")))
    return {one.benchmark: one for one in found if one}


def run_and_keep(one: Benchmark, times: int = 1) -> Result:
    """Run a benchmark in processes of its own, and keep what it told, a failure too."""
    began, before = time.monotonic(), os.getloadavg()[0]
    told: dict[str, list[Figure]] = {}
    failed = ""
    for _ in range(times):
        figures, failed = _run(one)
        for figure in figures:
            told.setdefault(figure.name, []).append(figure)
        if failed:
            break
    found = Result(
        benchmark=one.name,
        commit=_commit(),
        product=product(),
        time=datetime.now(UTC).replace(microsecond=0),
        machine=_machine(),
        load=(round(before, 1), round(os.getloadavg()[0], 1)),
        seconds=round(time.monotonic() - began, 1),
        times=times,
        missing=one.without,
        failed=failed,
        figures=tuple(_median(of) for of in told.values()),
    )
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{one.name}.json").write_text(found.model_dump_json(indent=2) + "\n")
    return found


def _median(of: list[Figure]) -> Figure:
    """One figure of several runs. An aim can be measured too: it is the median of theirs."""
    aims = [each.aim for each in of if each.aim is not None]
    value = median(each.value for each in of)
    return of[-1].model_copy(update={"value": value, "aim": median(aims) if aims else None})


def _run(one: Benchmark) -> tuple[list[Figure], str]:
    """The figures of one run, and how it failed; empty: it did not."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.jsonl"
        errors = Path(folder) / "errors"
        with errors.open("wb") as written:
            done = subprocess.run(
                [sys.executable, str(one.file)],
                cwd=ROOT,
                env={**os.environ, KEPT: str(file)},
                stderr=written,
                check=False,
            )
        said = errors.read_text(errors="replace")
        lines = file.read_text().splitlines() if file.is_file() else []
    figures = [Figure.model_validate(json.loads(line)) for line in lines]
    if not done.returncode:
        return figures, "" if figures else "it told no figure"
    sys.stderr.write(said)
    last = (said.strip().splitlines() or ["without a word"])[-1]
    return figures, f"exit code {done.returncode}: {last}"


def product() -> str:
    """What git calls the folder of the product here: 12 digits, and a + where files have changed.

    Empty: git knows nothing of it, as in a folder that is no clone.
    """
    tree = product_of("HEAD")
    return tree + "+" if tree and _git("status", "--porcelain", "--", "ml_assets") else tree


def product_of(commit: str) -> str:
    """The product of a commit; empty: git does not know the commit here."""
    return _git("rev-parse", "--quiet", "--verify", f"{commit}:ml_assets")[:12]


def _commit() -> str:
    changed = _git("status", "--porcelain", "--", ":!benchmarks/results", ":!docs/figures.md")
    return (_git("rev-parse", "--short=8", "HEAD") or "no commit") + ("+" if changed else "")


def _git(*asked: str) -> str:
    return subprocess.run(
        ["git", *asked], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()


def _machine() -> str:
    """Kind of processor, cores, memory, system and Python."""
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{named[0] if named else platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB,"
        f" {platform.system()}, Python {platform.python_version()}"
    )
