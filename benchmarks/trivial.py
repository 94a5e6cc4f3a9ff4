"""Three small steps: our graph beside other tools: python benchmarks/trivial.py [TURNS]

A file of one row is read, held to a contract of one line, and made into features. Each tool runs in
an environment of its own, as its docs run a graph on one machine, telemetry off: a fresh process,
the least of so many, and where a tool runs steps in the process that asks, a warm one, the least of
the turns after the first. The file changes before each turn, so that nothing is skipped. One figure
a line: NAME VALUE AIM holds|short.
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import peers
from cost import cost
from figures import tell
from graphs.plain import change
from start_up import plant

PEERS = ("kedro", "metaflow", "zenml")
NOTE = (
    "Ours publishes three tables in a run of Dagster's, each with its audit, statistics and digest;"
    " the functions of the others hand lists on: Kedro in memory and without a record of the run,"
    " Dagster, Metaflow and ZenML as files of a recorded run. Metaflow starts a process for each"
    " step, so that none of it is warm."
)
EACH_IS = "made of the least of five turns"
MEDIAN_OF = 5

TURNS = 5
GRAPHS = Path(__file__).with_name("graphs")
WHY = {
    "dagster": "Dagster is half of it; the rest reads, audits and publishes three tables by polars,"
    " where plain Dagster pickles lists.",
    "kedro": "Kedro writes no record of a run and stores nothing: its functions hand lists on.",
    "metaflow": "Metaflow loads no polars, and its artifacts are pickled lists.",
    "zenml": "ZenML's artifacts are lists in JSON.",
}


@dataclass(frozen=True)
class Seconds:
    """CPU and wall seconds of the cheapest turn; of a warm one none where there is none."""

    fresh: tuple[float, float]
    warm: tuple[float, float] | None


def main() -> None:
    """Print each figure with its aim."""
    turns = int((sys.argv[1:] or [str(TURNS)])[0])
    found: dict[str, Seconds] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("ours", "dagster", *PEERS):
            python = peers.python(name) if name in PEERS else sys.executable
            if python:
                found[name] = seconds(name, python, Path(folder) / name, turns)
            else:
                print(f"goes on without {peers.lack(name)}", flush=True)
    for name, one in found.items():
        tell_seconds(f"trivial_{name}_fresh", one.fresh)
        if one.warm:
            tell_seconds(f"trivial_{name}_warm", one.warm)
    ours = found.pop("ours")
    for name, one in found.items():
        why = WHY[name]
        tell(f"trivial_fresh_cpu_to_{name}", ours.fresh[0] / one.fresh[0], 1, why=why)
        if one.warm and ours.warm:
            tell(f"trivial_warm_cpu_to_{name}", ours.warm[0] / one.warm[0], 1, why=why)


def tell_seconds(name: str, seconds: tuple[float, float]) -> None:
    tell(f"{name}_cpu_s", seconds[0])
    tell(f"{name}_wall_s", seconds[1])


def seconds(name: str, python: str, scratch: Path, turns: int) -> Seconds:
    """The least that a tool takes; a run before the first pays what a machine pays once."""
    scratch.mkdir()
    table = scratch / "table.csv"
    environment = settings(scratch)
    script = [python, str(GRAPHS / f"{name}_trivial.py")]
    once = [*script, str(table), "1"]
    if name == "metaflow":
        once = [*script, "run", "--table", str(table)]
    fresh: list[tuple[float, float]] = []
    for _ in range(turns + 1):
        change(str(table))
        took = cost(once, environment, scratch)
        fresh.append((took.cpu, took.wall))
    warm = None
    if name != "metaflow":
        told = cost([*script, str(table), str(turns + 1)], environment, scratch).printed
        warm = _least([(cpu, wall) for cpu, wall in json.loads(told.splitlines()[-1])])
    return Seconds(_least(fresh), warm)


def _least(turns: list[tuple[float, float]]) -> tuple[float, float]:
    cpu, wall = zip(*turns[1:], strict=True)
    return min(cpu), min(wall)


def settings(scratch: Path) -> Mapping[str, str]:
    """All that a tool writes lies below the scratch folder."""
    plant(scratch / "pipelines", "trivial", sources=1)
    (scratch / "dagster").mkdir()
    return {
        **peers.QUIET,
        "DAGSTER_HOME": str(scratch / "dagster"),
        "METAFLOW_DATASTORE_SYSROOT_LOCAL": str(scratch),
        "METAFLOW_USER": "benchmark",
        "ML_ASSETS_HOME": str(scratch / "home"),
        "ML_ASSETS_PIPELINES": str(scratch / "pipelines"),
        "ML_ASSETS_SOURCES": str(scratch),
        "ZENML_CONFIG_PATH": str(scratch / "zenml"),
    }


if __name__ == "__main__":
    main()
