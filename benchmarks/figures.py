"""How a benchmark prints: one figure a line, NAME VALUE AIM holds|short.

Under ``python -m benchmarks`` each figure is kept, too, in the file that the runner names.
"""

import json
import os
from pathlib import Path
from typing import Literal

KEPT = "BENCHMARK_FIGURES"
"""The environment variable that names the file: a JSON line for each figure."""


def tell(
    name: str,
    value: float,
    aim: float | None = None,
    *,
    at: Literal["most", "least"] = "most",
    why: str = "",
) -> None:
    """Print a figure with its aim: at most that, or at least. Without one it is told for itself.

    Args:
        why: what stands in the way where it is short, one sentence.
    """
    held_to = ""
    if aim is not None:
        holds = bool(value <= aim if at == "most" else value >= aim)
        held_to = f" {'<=' if at == 'most' else '>='}{aim:g} {'holds' if holds else 'short'}"
    print(f"{name} {value:.3g}{held_to}", flush=True)
    if kept := os.environ.get(KEPT):
        said = {"name": name, "value": float(value), "aim": aim, "at": at, "why": why}
        with Path(kept).open("a") as file:
            file.write(json.dumps(said) + "\n")
