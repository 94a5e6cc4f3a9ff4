"""What the README's first command takes in a fresh clone: python benchmarks/fresh_machine.py

Clones the last commit, and runs `make install`, then `make demo`. Beside the first, pip alone
installs the same locked packages into another environment; beside the second, the bare script does
the demo's steps on the demo's own files. pip keeps no cache, so each package is fetched from its
index: the seconds are those of this network too. What is not committed is not in the clone. One
figure a line: NAME VALUE AIM holds|short.
"""

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from cost import cost
from figures import tell

NOTE = (
    "pip alone installs the same locked packages. The bare script (`benchmarks/bare_flights.py`)"
    " does the demo's steps on its files, after the demo has compiled the modules."
)
HERE = Path(__file__).parent
ALONE = {"PIP_NO_CACHE_DIR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
FETCHED = "pip fetches and unpacks about a gigabyte, half of which is torch."
WORK = (
    "The bare script has no Dagster, contract, version or evidence, and takes more than half of it:"
    " the network's training, the baselines and the bootstrap of the report. The rest: 359"
    " tables are published one by one, and Python compiles each module at its first use."
)


def main() -> None:
    """Print each figure with its aim."""
    with tempfile.TemporaryDirectory() as folder:
        clone, home = Path(folder) / "clone", Path(folder) / "home"
        subprocess.run(["git", "clone", "--quiet", HERE.parent, clone], check=True)
        pip = by_pip_alone(clone, Path(folder) / "alone")
        installed = cost(["make", "install"], ALONE, clone)
        demo = cost(["make", "demo"], {"ML_ASSETS_HOME": str(home)}, clone)
        script = [".venv/bin/python", "benchmarks/bare_flights.py", str(home / "demo")]
        bare = cost([*script, f"{folder}/bare"], {"PYTHONPATH": str(clone)}, clone)
    tell("fresh_install_seconds", installed.wall, 120, why=FETCHED)
    tell("fresh_pip_alone_seconds", pip)
    tell("fresh_install_to_pip_alone", installed.wall / pip)
    tell("fresh_demo_seconds", demo.wall, 60, why=WORK)
    tell("fresh_bare_script_seconds", bare.wall)
    tell("fresh_demo_to_bare_script", demo.wall / bare.wall)
    print(f"fresh_install_cpu_seconds {installed.cpu:.0f}")
    print(f"fresh_demo_cpu_seconds {demo.cpu:.0f}")
    print(f"fresh_bare_script_cpu_seconds {bare.cpu:.0f}")


def by_pip_alone(clone: Path, home: Path) -> float:
    """Seconds until the packages that ours needs are there in the locked versions, without ours."""
    needed = tomllib.loads((clone / "pyproject.toml").read_text())["project"]["dependencies"]
    made = cost([sys.executable, "-m", "venv", str(home)], {})
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-compile"]
    return made.wall + cost([*pip, "-c", "requirements.lock", *needed], ALONE, clone).wall


if __name__ == "__main__":
    main()
