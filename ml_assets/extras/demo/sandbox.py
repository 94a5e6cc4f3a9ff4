"""A sandbox for planted faults: a state folder, sources and a short pipeline of its own.

The real commands run there, in processes of their own.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import yaml

from ml_assets.adapters.execute import Tell
from ml_assets.extras.demo.outside_world import lay_out
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion
from ml_assets.settings import Settings, read_settings
from ml_assets.spec.records import Decision
from ml_assets.store.pipeline_context import Pipeline, open_pipeline

Change = Callable[[dict[str, Any]], None]
"""Changes a pipeline's attributes, as its YAML has them."""
WEEKS = 14
"""Weeks of the year: four to look back at, ten to learn from and to be judged on."""
_LAST = "2013-04-08"
"""The Monday after them."""


@dataclass(frozen=True)
class InjectionResult:
    """Holds what became of a planted fault."""

    held: bool
    planted: str
    caught: str
    """What caught it; or what should have."""
    after: str
    """How things stand now."""
    look: tuple[str, ...]
    """Commands that show it."""


@dataclass(frozen=True)
class Ran:
    """Describes how a command ended."""

    code: int
    lines: tuple[str, ...]

    def line(self, part: str) -> str:
        """The first line that holds this; empty where none does."""
        return next((line.strip() for line in self.lines if part in line), "")


@dataclass(frozen=True)
class Sandbox:
    """One plant's own place.

    Args:
        folder: holds everything; deleted before another try.
        original: the folder of the pipeline that is copied.
        world: the outside world, laid out once and shared by all.
    """

    name: str
    folder: Path
    original: Path
    world: Path
    tell: Tell

    @property
    def pipeline(self) -> str:
        return f"{self.original.name}_{self.name.replace('-', '_')}"

    @property
    def declared(self) -> Path:
        """The folder of the copied pipeline."""
        return self.folder / "pipelines" / self.pipeline

    @property
    def sources(self) -> Path:
        """The sandbox's own sources where there are any: see ``own_sources``."""
        own = self.folder / "sources"
        return own if own.is_dir() else self.world

    @property
    def settings(self) -> Settings:
        return read_settings(self._variables)

    def place(self) -> Pipeline:
        """Return what was made here."""
        return open_pipeline(self.pipeline, self.settings)

    def prepare(self, change: Change | None = None) -> None:
        """Begin from nothing: lay out the world, copy the pipeline and change it."""
        if self.folder.exists():
            shutil.rmtree(self.folder)
        lay_out(self.world, arrived=WEEKS)
        shutil.copytree(self.original, self.declared, ignore=shutil.ignore_patterns("__pycache__"))
        file = self.declared / "defs.yaml"
        spec = yaml.safe_load(file.read_text())
        shorten(spec["attributes"])
        if change:
            change(spec["attributes"])
        spec["attributes"]["name"] = self.pipeline
        file.write_text(yaml.safe_dump(spec, sort_keys=False))

    def own_sources(self, weeks: int) -> Path:
        """Copy the first weeks of the world, to be spoiled."""
        own = self.folder / "sources"
        shutil.copytree(self.world / "reference", own / "reference")
        shutil.copy(self.world / "weather.db", own)
        for folder in ("landing/flights", "arrivals"):
            (own / folder).mkdir(parents=True)
            for there in sorted((self.world / folder).glob("[0-9]*"))[:weeks]:
                copy = shutil.copytree if there.is_dir() else shutil.copy
                copy(there, own / folder / there.name)
        return own

    def command(self, *arguments: str) -> Ran:
        """Run a command of ml-assets here, and tell all that it says meanwhile but what passed."""
        self.tell(f"$ ml-assets {' '.join(arguments)}")
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ML_ASSETS_", "DAGSTER_", "MLFLOW_"))
        }
        lines: list[str] = []
        with subprocess.Popen(
            [sys.executable, "-m", "ml_assets.cli.main", *arguments],
            env={**inherited, **self._variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.rstrip())
                if "[pass]" not in line:
                    self.tell(f"  | {lines[-1]}")
        return Ran(process.returncode, tuple(lines))

    def look(self, *commands: str) -> tuple[str, ...]:
        """Commands for a person, with the environment that they need."""
        given = " ".join(f"{name}={quote(value)}" for name, value in self._variables.items())
        return (f"export {given}", *(f"ml-assets {command}" for command in commands))

    def decision(self) -> Decision | None:
        """The newest one here."""
        place = self.place()
        entries = read(place.store, place.name)
        return next((e.decision for e in reversed(entries) if e.decision is not None), None)

    def released(self) -> str | None:
        """Digest of the model that is released here."""
        place = self.place()
        return champion(read(place.store, place.name), place.spec.release.to)

    @property
    def _variables(self) -> Mapping[str, str]:
        return {
            "ML_ASSETS_HOME": str(self.folder / "state"),
            "ML_ASSETS_SOURCES": str(self.sources),
            "ML_ASSETS_PIPELINES": str(self.folder / "pipelines"),
        }


def shorten(spec: dict[str, Any]) -> None:
    """Fewer weeks, a smaller network and no costly baseline: minutes become seconds."""
    spec["partitions"]["end"] = _LAST
    spec["split"] = {"kind": "time", "train": 5, "validation": 1, "holdout": 2, "embargo": 1}
    spec["model"] |= {"width": 64, "members": 4}
    spec["training"] |= {"batch_size": 768, "evaluate_every": 20}
    evaluation = spec["evaluation"]
    evaluation.pop("simple_model", None)
    evaluation["bootstrap_samples"] = 200
    evaluation["baselines"] = [
        one for one in evaluation["baselines"] if one["kind"] != "gradient_boosting"
    ]
    spec["gates"] = [one for one in spec["gates"] if one.get("baseline") != "gradient_boosting"]


def refused_by(sandbox: Sandbox, gate: str, ran: Ran) -> tuple[bool, str]:
    """Say whether this gate refused the model and nothing is released, and with which words."""
    decision = sandbox.decision()
    failed = {g.name: g.reason for g in decision.gates if not g.passed} if decision else {}
    held = gate in failed and ran.code == _REFUSED and sandbox.released() is None
    if gate in failed:
        return held, f"the gate {gate}: {failed[gate]}"
    ended = ran.line("error:") or f"the run ended with code {ran.code}"
    return held, f"nothing: the gate {gate} should have refused the model; {ended}"


_REFUSED = 3
"""Exit code of a run that a gate refused."""
