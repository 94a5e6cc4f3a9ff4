"""Peak memory of raw -> validated -> features: python benchmarks/memory.py [FEW MANY]

Generated flights are taken in by `ml-assets run`, each size in a process of its own, whose peak
resident memory the kernel tells. Ten times as many weeks must take about the same: a partition is
read, judged and turned into features with its look-back, and let go. What ten times as many rows in
a week take is printed beside it, with no aim: a partition is the unit that has to fit. One figure a
line: NAME VALUE AIM holds|short.
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
FEW, MANY = 5, 50
"""Weeks; the features look back at four."""
TIMES = 10
MEBIBYTE = 1024  # ru_maxrss is in KiB


def main() -> None:
    """Print each figure with its aim."""
    few, many = (int(text) for text in sys.argv[1:3]) if len(sys.argv) > 1 else (FEW, MANY)
    floor = peak(1, through="raw_snapshot")
    low, high = peak(few), peak(many)
    print(f"one_week_raw_mib {floor:.0f}")
    print(f"weeks_{few}_mib {low:.0f}")
    print(f"weeks_{many}_mib {high:.0f}")
    tell(f"weeks_{many}_to_{few}", high / low, 1.2)
    big = peak(few, scale=TIMES)
    print(f"weeks_{few}_of_{TIMES}_times_the_rows_mib {big:.0f}")
    print(f"bytes_a_row_of_the_look_back {(big - low) * 2**20 / _more_rows(few):.0f}")


def _more_rows(weeks: int) -> float:
    """Flights that one partition and its look-back hold more, of the bigger weeks."""
    return min(weeks, 5) * 6400 * (TIMES - 1)


def peak(weeks: int, scale: float = 1.0, through: str = "feature_set") -> float:
    """Peak resident memory in MiB of taking so many weeks in."""
    with tempfile.TemporaryDirectory(prefix="memory-") as folder:
        root = Path(folder)
        pipelines = _pipeline_without_row_counts(root / "pipelines")
        _command(
            root, "data", "generate", str(root / "world"), f"--weeks={weeks}", f"--scale={scale}"
        )
        return _command(root, "run", pipelines, "--through", through) / MEBIBYTE


def _pipeline_without_row_counts(pipelines: Path) -> str:
    """The flights under a name of their own, in weeks of any size."""
    name = f"{PIPELINE}_of_any_size"
    shutil.copytree(FOLDER, pipelines / name)
    spec = pipelines / name / "defs.yaml"
    spec.write_text(spec.read_text().replace(f"name: {PIPELINE}\n", f"name: {name}\n"))
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
