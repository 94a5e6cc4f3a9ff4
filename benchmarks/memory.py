"""Peak memory of every stage up to the report, at 5, 50 and 200 partitions.

    python benchmarks/memory.py [--scale 0.1] [N...]

Generated flights are taken in by `ml-assets run`, a stage at a time and each in a process of its
own, whose peak resident memory the kernel tells: N partitions of features and the weeks that they
look back at. Forty times as many must take about the same: what a stage holds is one partition and
its look-back, and of a training set one partition. Weeks have a tenth of the real ones' rows, so
that 200 of them are a matter of minutes: what a stage keeps of each partition, the fault that this
would find, does not depend on its rows, and is the larger part of a smaller program. The
examination of a training set, the training and the scores are programs of their own: the shards
that they map are left out, for the kernel drops their pages when anybody needs the room. What ten
times as many rows in a week take is printed beside it, with no aim: a partition is the unit that
has to fit. One figure a line: NAME VALUE AIM holds|short.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from figures import tell

import ml_assets.pipelines
from ml_assets.launch.local.supervisor import descendants

PIPELINE = "flight_delays"
FOLDER = Path(ml_assets.pipelines.__path__[0]) / PIPELINE
COUNTS = (5, 50, 200)
"""Partitions of features."""
SCALE = 0.1
"""Rows of a generated week, as a share of those of a real one."""
BATCH = 480
"""Rows of a step: fewer than a week has at that scale, or fewer weeks would make smaller steps."""
LOOK_BACK = 4
"""Weeks before the first of them."""
STAGES = (
    "raw_snapshot",
    "validated_table",
    "feature_set",
    "training_set",
    "trained_model",
    "evaluation_report",
)
REFUSED = 3
"""The exit code of a report whose gates refuse the model: of so few rows it may be poor."""
AIM = 1.15
KEPT = (
    "Scikit-learn's boosting, a baseline, holds its training rows twice, as float64: half a million"
    " at most, and no window here has so many. The rest is the run's records and events."
)
TIMES = 10
MEBIBYTE = 1024  # the kernel counts in KiB
_BETWEEN_LOOKS = 0.03
_BETWEEN_SAMPLES = 0.002
"""Seconds: the kernel keeps no peak of a process without its mapped files; a peak may be brief."""


def main() -> None:
    """Print each figure with its aim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("counts", nargs="*", type=int, metavar="N")
    parser.add_argument("--scale", type=float, default=SCALE)
    asked = parser.parse_args()
    few, *more = asked.counts or COUNTS
    low = peaks(few, asked.scale)
    for count in more:
        for stage, high in peaks(count, asked.scale).items():
            tell(f"{stage}_{count}_to_{few}", high / low[stage], AIM, why=KEPT)
    data = STAGES[:3]
    one, big = (peaks(few, scale, data)["feature_set"] for scale in (1.0, TIMES))
    print(f"feature_set_{few}_of_{TIMES}_times_the_rows_mib {big:.0f}")
    rows = (LOOK_BACK + 1) * 6400 * (TIMES - 1)
    print(f"bytes_a_row_of_the_look_back {(big - one) * 2**20 / rows:.0f}")


def peaks(count: int, scale: float, stages: Sequence[str] = STAGES) -> dict[str, float]:
    """Stage -> peak resident memory in MiB of making so many partitions of it."""
    weeks = count + LOOK_BACK
    with tempfile.TemporaryDirectory(prefix="memory-") as folder:
        root = Path(folder)
        pipeline = _pipeline_without_row_counts(root / "pipelines", count)
        world = str(root / "world")
        _command(root, "data", "generate", world, f"--weeks={weeks}", f"--scale={scale}")
        found: dict[str, float] = {}
        for stage in stages:  # each goes on from what is there
            own, program = _command(root, "run", pipeline, "--through", stage)
            found |= {stage: own, **({f"{stage}_program": program} if program else {})}
        for stage, peak in found.items():
            print(f"{stage}_{count}_mib {peak:.0f}", flush=True)
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
        "batch_size: 3072": f"batch_size: {BATCH}",
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


def _command(root: Path, *arguments: str) -> tuple[float, float]:
    """Run ml-assets; peak MiB of its process, and of what the training program had of its own."""
    apart = {k: v for k, v in os.environ.items() if not k.startswith("ML_ASSETS_")}
    environment = {
        **apart,
        "ML_ASSETS_HOME": str(root / "home"),
        "ML_ASSETS_SOURCES": str(root / "world"),
        "ML_ASSETS_PIPELINES": str(root / "pipelines"),
    }
    command = [sys.executable, "-m", "ml_assets.cli.main", *arguments]
    own = program = 0.0
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            own = max(own, _mebibytes(process.pid, "VmHWM"))
            programs = [
                child
                for child in descendants(process.pid)
                if b"ml_assets.training" in _command_line(child)
            ]
            until = time.monotonic() + _BETWEEN_LOOKS
            while time.monotonic() < until:
                program = max([program, *(_mebibytes(one, "RssAnon") for one in programs)])
                time.sleep(_BETWEEN_SAMPLES)
    if process.returncode not in (0, REFUSED):
        raise SystemExit(f"{' '.join(arguments)} ended with exit code {process.returncode}")
    return own, program


def _mebibytes(pid: int, name: str) -> float:
    """What the kernel says of a process; 0 where it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    lines = (line.split() for line in status.splitlines() if line.startswith(f"{name}:"))
    return next((int(line[1]) / MEBIBYTE for line in lines), 0.0)


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    main()
