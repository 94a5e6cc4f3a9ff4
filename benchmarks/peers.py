"""Other tools that benchmarks compare with, each in an environment of its own.

``peers.toml`` pins them. ``python -m benchmarks peers`` makes the environments, below
``BENCHMARK_PEERS`` or the user's cache; a benchmark goes on without those that are not there.
"""

import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PINS: dict[str, dict[str, Any]] = tomllib.loads((HERE / "peers.toml").read_text())
FOLDER = "BENCHMARK_PEERS"
_BESIDE = "BENCHMARK_BESIDE"
_LATE = (
    f"import os, site; late = os.environ.get({_BESIDE!r}, '');"
    " list(map(site.addsitedir, filter(None, late.split(os.pathsep))))\n"
)
"""A ``.pth`` file: on request, packages of this environment after those of the peer."""
QUIET = {
    "AUTO_OPEN_DASHBOARD": "false",
    "DAGSTER_DISABLE_TELEMETRY": "yes",
    "DO_NOT_TRACK": "1",
    "KEDRO_DISABLE_TELEMETRY": "1",
    "ZENML_ANALYTICS_OPT_IN": "false",
    "ZENML_LOGGING_VERBOSITY": "WARN",
}
"""No peer sends anything to anybody."""


def python(name: str) -> str:
    """The interpreter of a peer; empty: it is not there in the pinned version."""
    pinned = _home(name) / "pinned"
    there = pinned.is_file() and pinned.read_text() == PINS[name]["package"]
    return str(_home(name) / "bin" / "python") if there else ""


def beside() -> dict[str, str]:
    """The settings by which a peer finds this repository and, after its own packages, ours."""
    return {
        **QUIET,
        _BESIDE: os.pathsep.join(path for path in sys.path if path.endswith("site-packages")),
        "PYTHONPATH": os.pathsep.join((str(HERE.parent), str(HERE))),
        "BENCHMARK_PYTHON": sys.executable,
    }


def lack(name: str) -> str:
    """A peer that is not there, and how to get it."""
    return f"{name} ({command(name)})"


def command(name: str) -> str:
    """What installs a peer."""
    return f"python -m benchmarks peers {name}"


def install(name: str) -> None:
    """Make the environment of a peer, or make it anew where another version is pinned.

    Raises:
        subprocess.CalledProcessError: pip could not install it.
    """
    home = _home(name)
    venv.create(home, clear=True, with_pip=True)
    late = next(home.glob("lib/python*/site-packages")) / "beside.pth"
    late.write_text(_LATE)
    pin = PINS[name]
    subprocess.run(
        [
            *(str(home / "bin" / "python"), "-m", "pip", "install", "--quiet"),
            *(pin["package"], *pin.get("with", ())),
        ],
        env={**os.environ, **(beside() if pin.get("beside") else {})},
        check=True,
    )
    (home / "pinned").write_text(pin["package"])


def _home(name: str) -> Path:
    folder = os.environ.get(FOLDER) or Path.home() / ".cache" / "ml_assets" / "peers"
    return Path(folder) / name
