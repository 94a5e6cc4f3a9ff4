"""What the README's first command takes in a fresh clone: python benchmarks/fresh_machine.py

Clones the last commit, and runs `make install`, then `make demo`. pip keeps no cache, so each
package is fetched from its index: the seconds are those of this network too. What is not committed
is not in the clone. One figure a line: NAME VALUE AIM holds|short.
"""

import subprocess
import tempfile
from pathlib import Path

from cost import cost
from figures import tell

HERE = Path(__file__).parent
FETCHED = "pip fetches and unpacks about a gigabyte, half of which is torch."


def main() -> None:
    """Print each figure with its aim."""
    with tempfile.TemporaryDirectory() as folder:
        clone, settings = Path(folder) / "clone", {"PIP_NO_CACHE_DIR": "1"}
        subprocess.run(["git", "clone", "--quiet", HERE.parent, clone], check=True)
        installed = cost(["make", "install"], settings, clone)
        demo = cost(["make", "demo"], {"ML_ASSETS_HOME": f"{folder}/home"}, clone)
    tell("fresh_install_seconds", installed.wall, 120, why=FETCHED)
    tell("fresh_demo_seconds", demo.wall, 60, why="Most of it is work: overhead.py takes it apart.")
    print(f"fresh_install_cpu_seconds {installed.cpu:.0f}")
    print(f"fresh_demo_cpu_seconds {demo.cpu:.0f}")


if __name__ == "__main__":
    main()
