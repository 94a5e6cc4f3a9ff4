"""What a proof takes beside the release that it proves: python benchmarks/prove.py

The demo releases a model from a year of real flights, in a state folder of its own; then
`ml-assets release prove` makes all of it again from the sources, and has to find each part equal.
One figure a line: NAME VALUE AIM holds|short.
"""

import sys
import tempfile
from pathlib import Path

from cost import cost
from figures import tell

COMMAND = (sys.executable, "-m", "ml_assets.cli.main")
AGAIN = (
    "A proof does again all that made the release, one partition at a time, and shares the cores"
    " with its training as the release did."
)


def main() -> None:
    """Print each figure with its aim."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"ML_ASSETS_HOME": str(Path(folder) / "home")}
        release = cost([*COMMAND, "demo"], settings, folder)
        proof = cost([*COMMAND, "release", "prove", "flight_delays"], settings, folder)
    print(f"release_seconds {release.wall:.0f}")
    print(f"prove_seconds {proof.wall:.0f}")
    tell("prove_to_release_wall", proof.wall / release.wall, 0.6, why=AGAIN)
    tell("prove_to_release_cpu", proof.cpu / release.cpu, 1, why=AGAIN)


if __name__ == "__main__":
    main()
