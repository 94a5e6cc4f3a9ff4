"""The real year of flights with a short model, so that a week passes in seconds."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

import ml_assets.pipelines
from ml_assets.extras.demo.outside_world import WEEKS, lay_out
from ml_assets.extras.demo.sandbox import shorten

NAME = "flight_year"
Change = Callable[[dict[str, Any]], None]


def plant(pipelines: Path, sources: Path, change: Change = lambda attributes: None) -> None:
    """The spec of the demo, cut short; the first week has landed, and the reference tables."""
    original = Path(ml_assets.pipelines.__path__[0]) / "flight_delays"
    folder = pipelines / NAME
    shutil.copytree(original, folder, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "defs.yaml"
    spec = yaml.safe_load(file.read_text())
    attributes = spec["attributes"]
    end = attributes["partitions"]["end"]
    shorten(attributes)
    attributes["partitions"]["end"] = end
    attributes["name"] = NAME
    attributes["split"] = {"kind": "time", "train": 8, "validation": 1, "holdout": 2, "embargo": 1}
    attributes["training"] |= {"epochs": 1, "processes": 1, "strategy": "replicate"}
    change(attributes)
    file.write_text(yaml.safe_dump(spec, sort_keys=False))
    lay_out(sources, arrived=1)


__all__ = ["NAME", "WEEKS", "plant"]
