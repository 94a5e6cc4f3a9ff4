"""Identifies the program and its machine: a session's name contains it, a process reports it first.

Both sides of a launch use this: the launcher names the program that it means, and each node of an
attempt reports its own before it takes a step.
"""

import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Literal

from pydantic import Field

from ml_assets.spec.base import Digest, Frozen, digest_of, unset
from ml_assets.spec.reached_code import PACKAGE, closure

Part = Literal["network", "trees", "xgboost", "measure", "sanity", "score"]
"""The part that the program runs: a training by its family, or another verb."""

_ENTRANCES: dict[Part, str] = {
    "network": "ml_assets.training.train:train",
    "trees": "ml_assets.training.boosting.train:train",
    "xgboost": "ml_assets.training.boosting.train:train",
    "measure": "ml_assets.training.measure_pace:measure",
    "sanity": "ml_assets.training.sanity.suite:sanity",
    "score": "ml_assets.training.score:score",
}
_TELLS = (
    "ml_assets.errors",
    "ml_assets.spec.training_program.events",
    "ml_assets.spec.training_program.identity",
    "ml_assets.store.retries",
    "ml_assets.store.s3.client",
    "ml_assets.store.s3.checkpoints",
    "ml_assets.training.events",
    "ml_assets.training.hang",
    "ml_assets.training.peers",
    "ml_assets.training.telemetry",
)
"""Modules that only say how it goes, or carry bytes held to digests: they decide no result."""
# torch, lightgbm and xgboost do the arithmetic, numpy draws the order of the rows and encodes them.
# Python, pydantic, safetensors and boto3 carry numbers and change none.
_DECIDE: dict[Part, tuple[str, ...]] = {
    "network": ("numpy", "torch"),
    "trees": ("lightgbm", "numpy"),
    "xgboost": ("numpy", "xgboost", "xgboost-cpu"),
    "measure": ("numpy", "torch"),
    "sanity": ("numpy", "torch"),
    "score": ("lightgbm", "numpy", "torch", "xgboost", "xgboost-cpu"),
}


class Program(Frozen):
    """The program as it decides the result besides the request: equal ones give the same bits."""

    sources: Digest
    """The digest of all our modules that it loads, by their syntax: no comments, no docstrings."""
    versions: dict[str, str]
    """Distribution -> version, of those that decide bits; without the build's own label."""

    @property
    def digest(self) -> str:
        """The digest that a session is named by."""
        return digest_of(self)

    def __str__(self) -> str:
        told = "".join(f", {name} {version}" for name, version in self.versions.items())
        return f"{self.sources[:12]}{told}"


class Machine(Frozen):
    """A machine, as a process on it sees it."""

    system: str
    machine: str
    cpu: str
    cores: int
    memory_bytes: int | None
    gpus: tuple[str, ...] = Field(strict=False)
    """The models of the GPUs that the process may use."""
    gpu_driver: str | None

    @property
    def devices(self) -> tuple[str, ...]:
        """The kinds of device that it computes on."""
        return tuple(sorted(set(self.gpus))) or (self.cpu,)


class NodePlace(Frozen):
    """The place where a cluster put one node of an attempt."""

    index: int
    pod: str
    node: str | None
    node_type: str | None
    """Its instance type; None: it has none, or we may not read nodes."""
    image: str
    """The image as the container runtime resolved it, with its digest; empty: it did not say."""


class Node(Frozen):
    """One node that a training ran on: what it ran, and on what."""

    program: Program
    versions: dict[str, str]
    """Distribution -> version, of all that matter there, with Python's."""
    machine: Machine
    place: NodePlace | None = Field(default=None, exclude_if=unset)
    """None: it ran beside whoever asked for it."""


_TREES: dict[str, Part] = {"lightgbm": "trees", "xgboost": "xgboost"}


def part_of(verb: Literal["train", "measure", "sanity", "score"], family: str = "") -> Part:
    """The part of the program that a verb runs for a family of models."""
    if verb == "train":
        return _TREES.get(family, "network")
    return verb


def program_here(part: Part, package: Path = PACKAGE) -> Program:
    """The program as it is on this machine: its sources now, and what is installed.

    A distribution that is not installed here (the orchestrator's image has no torch) counts as
    requirements.lock pins it.

    Args:
        package: where ours lies.
    """
    found = {name: installed(name) or _pinned(name) for name in _DECIDE[part]}
    return Program(
        sources=closure([_ENTRANCES[part]], stops=_TELLS, package=package).digest(packages=False),
        versions={name: public(told) for name, told in found.items() if told},
    )


def difference(wanted: Program, here: Program) -> str:
    """Say how the program here differs from the one that is wanted; empty: it does not.

    What is not installed here is not compared: the family that needs it says so.
    """
    parts = []
    if wanted.sources != here.sources:
        parts.append(f"its sources are {here.sources[:12]}, not {wanted.sources[:12]}")
    for name, told in wanted.versions.items():
        found = here.versions.get(name)
        if found is not None and found != told:
            parts.append(f"{name} is {found}, not {told}")
    return "; ".join(parts)


def installed(name: str) -> str | None:
    """The version of a distribution; None: it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def public(told: str) -> str:
    """A version without the label of its build: ``2.13.0+cu126`` is 2.13.0 for another device."""
    return told.partition("+")[0]


def versions_here(names: Iterable[str]) -> dict[str, str]:
    """Python's version and those of what is installed of these, with the labels of their builds."""
    found = {name: installed(name) for name in names}
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return {"python": python, **{name: told for name, told in found.items() if told}}


def all_versions() -> dict[str, str]:
    """Every installed distribution -> version."""
    told = [distribution.metadata for distribution in distributions()]  # each is parsed anew
    found = {one["Name"]: one["Version"] for one in told if one["Name"]}
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def machine_here(gpus: Iterable[str] | None = None) -> Machine:
    """The machine that this process runs on.

    Args:
        gpus: those that the process computes on; None: all that the driver shows.
    """
    shown = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    driver = Path("/proc/driver/nvidia/version")
    if gpus is None:
        gpus = [_field(gpu, "Model") or "unknown" for gpu in shown]
    return Machine(
        system=platform.platform(),
        machine=platform.machine(),
        cpu=_field(Path("/proc/cpuinfo"), "model name") or platform.processor() or "unknown",
        cores=os.cpu_count() or 1,
        memory_bytes=_memory(),
        gpus=tuple(gpus),
        gpu_driver=driver.read_text().splitlines()[0] if driver.is_file() else None,
    )


def _pinned(name: str) -> str | None:
    lock = PACKAGE.parent / "requirements.lock"
    if not lock.is_file():
        return None
    for line in lock.read_text().splitlines():
        pinned, _, told = line.partition("==")
        if pinned.strip().lower() == name:
            return told.split(";")[0].split("#")[0].strip()
    return None


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def _field(file: Path, name: str) -> str | None:
    """The first ``name : value`` of a file of the kernel's."""
    if not file.is_file():
        return None
    for line in file.read_text().splitlines():
        key, found, value = line.partition(":")
        if found and key.strip() == name:
            return value.strip()
    return None
