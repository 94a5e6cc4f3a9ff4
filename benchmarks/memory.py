"""Peak memory of every data stage, the training set included: python benchmarks/memory.py [N...]

Generated flights are taken in by `ml-assets run`, a stage at a time and each in a process of its
own, whose peak resident memory the kernel tells: N partitions of features (5 and 50; 200 is a
matter of minutes) and the weeks that they look back at. Ten times as many must take about the same:
what a stage holds is one partition and its look-back, and of a training set one partition. What ten
times as many rows in a week take is printed beside it, with no aim: a partition is the unit that
has to fit. One figure a line: NAME VALUE AIM holds|short.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import tell

import ml_assets.pipelines

PIPELINE = "flight_delays"
FOLDER = Path(ml_assets.pipelines.__path__[0]) / PIPELINE
COUNTS = (5, 50)
"""Partitions of features."""
LOOK_BACK = 4
"""Weeks before the first of them."""
STAGES = ("raw_snapshot", "validated_table", "feature_set", "training_set")
AIM = 1.15
TIMES = 10
MEBIBYTE = 1024  # ru_maxrss is in KiB


def main() -> None:
    """Print each figure with its aim."""
    few, *more = tuple(map(int, sys.argv[1:])) or COUNTS
    low = peaks(few)
    for count in more:
        for stage, high in peaks(count).items():
            tell(f"{stage}_{count}_to_{few}", high / low[stage], AIM)
    big = peaks(few, scale=TIMES)["feature_set"]
    print(f"feature_set_{few}_of_{TIMES}_times_the_rows_mib {big:.0f}")
    rows = (LOOK_BACK + 1) * 6400 * (TIMES - 1)
    print(f"bytes_a_row_of_the_look_back {(big - low['feature_set']) * 2**20 / rows:.0f}")


def peaks(count: int, scale: float = 1.0) -> dict[str, float]:
    """Stage -> peak resident memory in MiB of making so many partitions of it."""
    weeks = count + LOOK_BACK
    with tempfile.TemporaryDirectory(prefix="memory-") as folder:
        root = Path(folder)
        pipeline = _pipeline_without_row_counts(root / "pipelines", count)
        world = str(root / "world")
        _command(root, "data", "generate", world, f"--weeks={weeks}", f"--scale={scale}")
        found: dict[str, float] = {}
        for stage in STAGES:  # each goes on from what is there
            found[stage] = _command(root, "run", pipeline, "--through", stage) / MEBIBYTE
            print(f"{stage}_{count}_mib {found[stage]:.0f}", flush=True)
        return found


def _pipeline_without_row_counts(pipelines: Path, count: int) -> str:
    """The flights under a name of their own, in weeks of any size, all of them in the window."""
    name = f"{PIPELINE}_of_any_size"
    shutil.copytree(FOLDER, pipelines / name)
    spec = pipelines / name / "defs.yaml"
    text = spec.read_text()
    changes = {
        f"name: {PIPELINE}\n": f"name: {name}\n",
        "train: 33, validation: 4, holdout: 8": f"train: {count - 4}, validation: 1, holdout: 1",
        "end: 2014-01-06": "end: 2022-01-03",  # calendars are generated for any year
    }
    for old, new in changes.items():
        assert old in text, f"{spec} does not say {old!r}"
        text = text.replace(old, new)
    spec.write_text(text)
    for contract in (pipelines / name / "contracts").glob("*.json"):
        suite = json.loads(contract.read_text())
        kept = [e for e in suite["expectations"] if "row_count" not in e["type"]]
        contract.write_text(json.dumps({**suite, "expectations": kept}))
    return name


def _command(root: Path, *arguments: str) -> int:
    """Run ml-assets; its peak resident memory in KiB."""
    apart = {k: v for k, v in os.environ.items() if not k.startswith("ML_ASSETS_")}
    environment = {
        **apart,
        "ML_ASSETS_HOME": str(root / "home"),
        "ML_ASSETS_SOURCES": str(root / "world"),
        "ML_ASSETS_PIPELINES": str(root / "pipelines"),
    }
    command = [sys.executable, "-m", "ml_assets.cli.main", *arguments]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with exit code {process.returncode}")
    return usage.ru_maxrss


if __name__ == "__main__":
    main()
