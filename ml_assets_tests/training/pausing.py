"""python -m ml_assets_tests.training.pausing FOLDER train --request REQUEST.json

The training program as it is, but where rank 0 works outside the steps it leaves FOLDER/<phase> and
waits until that is taken away: so slow are a large state, a far store and a long calibration.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ml_assets.training import __main__ as program
from ml_assets.training import train
from ml_assets.training.checkpoints.whole_checkpoints import CheckpointFiles

PHASES = ("set", "resume", "save", "best", "export")


def pause(owner: Any, name: str, sign: Path) -> None:
    """From here on a function waits before it does its work."""
    work: Callable[..., Any] = getattr(owner, name)

    def paused(*given: Any) -> Any:
        sign.touch()
        while sign.exists():
            time.sleep(0.02)
        return work(*given)

    setattr(owner, name, paused)


if __name__ == "__main__":
    folder = Path(sys.argv.pop(1))
    places: dict[str, tuple[Any, str]] = {
        "set": (train, "open_set"),
        "resume": (CheckpointFiles, "claim"),
        "save": (CheckpointFiles, "seal"),
        "best": (CheckpointFiles, "best_first"),
        "export": (train, "export"),
    }
    for phase in PHASES if os.environ.get("RANK", "0") == "0" else ():
        pause(*places[phase], folder / phase)
    program.run()
