"""What it costs to load the code location, against what it stands on: python benchmarks/start_up.py

Every run process pays this. CPU seconds of fresh interpreters, best of five; one figure a line:
NAME VALUE AIM holds|short.
"""

import resource
import subprocess
import sys

RUNS = 5
CASES = {
    # name: (code, baseline code, aim: at most this ratio)
    "definitions_to_dagster": (
        "from ml_assets.definitions import defs; defs()",
        "import dagster",
        2.0,
    ),
    "help_to_python": ("from ml_assets.cli.main import parser; parser()", "pass", 10.0),
}


def cpu_seconds(code: str) -> float:
    """The least CPU time of a fresh interpreter that runs the code."""
    found: list[float] = []
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def main() -> None:
    """Print each ratio with its aim."""
    for name, (code, baseline, aim) in CASES.items():
        ratio = cpu_seconds(code) / cpu_seconds(baseline)
        print(f"{name} {ratio:.2f} <={aim:g} {'holds' if ratio <= aim else 'short'}")


if __name__ == "__main__":
    main()
