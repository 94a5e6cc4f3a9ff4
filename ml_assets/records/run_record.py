"""The run record: everything needed to make a model again, and to say where a repeat differed.

Code, environment, configuration, exact inputs, seed, machine and outputs, as one JSON document.
"""

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

import ml_assets
from ml_assets.settings import Settings
from ml_assets.spec.base import Digest, Frozen, digest_of, unset
from ml_assets.spec.records import InputVersion, StageRecord, Time
from ml_assets.spec.registered import Registered
from ml_assets.spec.search_parameter import Value
from ml_assets.spec.training_program import World
from ml_assets.spec.training_program.events import Lost
from ml_assets.spec.training_program.identity import (
    Machine,
    Node,
    Program,
    all_versions,
    difference,
    machine_here,
)
from ml_assets.store.layout import Address
from ml_assets.store.objects import bytes_digest, file_digest

RUN_FILE = "run.json"
"""The run record beside a model, and beside the report on it."""
MAIN_PACKAGES = (
    "dagster",
    "lightgbm",
    "mlflow",
    "numpy",
    "polars",
    "pydantic",
    "safetensors",
    "torch",
)
_PACKAGE = Path(ml_assets.__file__).parent
_PROJECT = _PACKAGE.parent


class Code(Frozen):
    """Says which sources ran."""

    version: str
    """The version of the package."""
    git_sha: str | None
    """None where the package does not run from a checkout of its own."""
    dirty: bool | None
    changes: Digest | None
    """The digest of the difference to the commit, see ``uncommitted``; None where clean."""
    sources: Digest
    """The digest of every source file of the package: says the same without git."""


class Environment(Frozen):
    """Holds what the process ran in that prepared the data, asked for training and judged."""

    code: Code
    lock: Digest | None
    """The digest of requirements.lock; None where the package was installed without it."""
    python: str
    packages: dict[str, str]
    """Every installed distribution -> version."""
    machine: Machine
    settings: Digest
    """The digest of all places that it read and wrote: see ``Settings.digest``."""


class RunInput(InputVersion):
    """An exact input, with what was in it."""

    rows: int | None
    path: str
    """The path of its record in the snapshot store, at ``commit``; without one: its name in the
    spec."""


class SearchOrigin(Frozen):
    """The study whose winner a training is by; its values are in the config, like all others."""

    study: str
    """The name of the study: a digest of all that decides its trials."""
    trial: int
    space: Digest
    """The digest of the space that was searched."""
    values: dict[str, Value]
    """Path of each field of the space -> its value."""


class RunRecord(Frozen):
    """One training session or release, complete: see the module."""

    schema_version: Literal[1] = 1
    reproduces: Digest
    """Digest of code, lock, configuration, inputs and seed: equal means the same was asked for."""
    pipeline: str
    session: str
    run: str
    """Dagster run id."""
    environment: Environment
    config: dict[str, Any]
    """The resolved spec."""
    config_digest: Digest
    seed: int
    world: World | None
    program: Program | None = Field(default=None, exclude_if=unset)
    """That trains, or judges what was made elsewhere; None: the record is of an evaluation."""
    registered: Registered | None = Field(default=None, exclude_if=unset)
    """None: it was trained here."""
    nodes: tuple[Node, ...] = Field(default=(), strict=False, exclude_if=unset)
    """What the training itself ran, and on what, as each node said at the beginning."""
    inputs: tuple[RunInput, ...] = Field(strict=False)
    outputs: dict[str, str]
    """Name -> digest: the model, the weights, the report, the training set, ..."""
    metrics: dict[str, float]
    salt: str | None = Field(default=None, exclude_if=unset)
    """The salt of a training asked for afresh: it is in the session's name, and in no result."""
    search: SearchOrigin | None = Field(default=None, exclude_if=unset)
    """None: the spec's own values were trained by."""
    lost: tuple[Lost, ...] = Field(default=(), strict=False, exclude_if=unset)
    """Attempts that ended without a result, oldest first, and why."""
    time: Time


def environment(settings: Settings) -> Environment:
    """Return what this process runs in. It asks git, and reads a few files; nothing is imported."""
    lock, packages = _PROJECT / "requirements.lock", all_versions()
    return Environment(
        code=_code(packages.get("ml_assets", "unknown")),
        lock=file_digest(lock) if lock.is_file() else None,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        packages=packages,
        machine=machine_here(),
        settings=settings.digest,
    )


def run_record(
    found: Environment,
    *,
    pipeline: str,
    session: str,
    run: str,
    config: BaseModel,
    seed: int,
    inputs: Sequence[RunInput],
    outputs: Mapping[str, str],
    metrics: Mapping[str, float],
    world: World | None = None,
    salt: str | None = None,
    program: Program | None = None,
    search: SearchOrigin | None = None,
    registered: Registered | None = None,
) -> RunRecord:
    """Put a record together.

    Args:
        found: where it ran, from ``environment``.
        config: the pipeline's spec, resolved.
        inputs: what was read, from ``run_input``.
        outputs: name -> digest of what was made.
        program: that trains.
        search: where values of the spec come from, if from a study.
        registered: what is said of a model that was made elsewhere.
    """
    plain = config.model_dump(mode="json")
    return RunRecord(
        reproduces=_reproduces(found, program, plain, seed, inputs),
        pipeline=pipeline,
        session=session,
        run=run,
        environment=found,
        config=plain,
        config_digest=digest_of(plain),
        seed=seed,
        world=world,
        program=program,
        inputs=tuple(inputs),
        outputs=dict(outputs),
        metrics=dict(metrics),
        salt=salt,
        search=search,
        registered=registered,
        time=datetime.now(UTC),
    )


def contradiction(record: RunRecord) -> str:
    """Return which of a record's own digests is not of what it says; empty where all are."""
    if digest_of(record.config) != record.config_digest:
        return "its config is not what its config_digest names"
    seed = record.config.get("training", {}).get("seed")
    if seed != record.seed:
        return f"its seed is {record.seed}, its config says training.seed {seed}"
    asked = _reproduces(
        record.environment, record.program, record.config, record.seed, record.inputs
    )
    if asked != record.reproduces:
        return "its code, lock, inputs or seed are not what it names itself by (reproduces)"
    other = [node.program for node in record.nodes if _is_other(node.program, record.program)]
    if other:
        return f"a node ran the program {other[0]}, and it is of {record.program}"
    return ""


def _is_other(ran: Program, asked: Program | None) -> bool:
    return asked is not None and bool(difference(asked, ran))


def _reproduces(
    found: Environment,
    program: Program | None,
    config: Mapping[str, Any],
    seed: int,
    inputs: Sequence[RunInput],
) -> str:
    asked = {
        "code": found.code.sources,
        **({"program": program.digest} if program else {}),
        "lock": found.lock,
        "config": config,
        "seed": seed,
        "inputs": sorted([i.key, i.partition or "", i.version] for i in inputs),
    }
    return digest_of(asked)


def run_input(record: StageRecord, commit: str) -> RunInput:
    """An input that was read at a commit."""
    address = Address.of(record.key, record.partition)
    return RunInput(
        key=record.key,
        partition=record.partition,
        version=record.data_version,
        commit=commit,
        rows=record.rows,
        path=address.record,
    )


def run_tags(record: RunRecord) -> dict[str, str]:
    """The record's handles as flat tags, to search MLflow by; the record itself is an artifact."""
    found = record.environment
    versions, machine = found.packages, found.machine
    if record.nodes:  # where it trained, which is not always here
        versions, machine = record.nodes[0].versions, record.nodes[0].machine
    places = [node.place for node in record.nodes if node.place]
    tags = {
        "ml_assets.session": record.session,
        "ml_assets.pipeline": record.pipeline,
        "ml_assets.reproduces": record.reproduces,
        "dagster.run_id": record.run,
        "code.version": found.code.version,
        "code.sources": found.code.sources,
        "code.sha": found.code.git_sha or "none",
        "code.dirty": "unknown" if found.code.dirty is None else str(found.code.dirty).lower(),
        "env.lock": found.lock or "none",
        "env.python": versions.get("python", found.python),
        "env.system": f"{machine.system} {machine.machine}",
        "env.cpu": f"{machine.cores} x {machine.cpu}",
        "env.gpus": ", ".join(machine.gpus) or "none",
        "config.digest": record.config_digest,
        "seed": str(record.seed),
        "data.commit": ", ".join(sorted({i.commit for i in record.inputs if i.commit})),
    }
    tags |= {f"data.{i.key}{_in(i.partition)}": i.version for i in record.inputs}
    tags |= {f"output.{name}": digest for name, digest in record.outputs.items()}
    if record.program:
        tags["code.program"] = record.program.digest
    if places:
        tags["env.image"] = _all(place.image for place in places)
        tags["env.node_type"] = _all(place.node_type for place in places) or "not told"
    known = {**found.packages, **versions}
    tags |= {f"env.{n}": known[n] for n in MAIN_PACKAGES if n in known}
    return tags


def record_bytes(record: RunRecord) -> bytes:
    """The record as it is stored and attached: the order of the config's mappings is the spec's.

    The columns of a source are in that order in its tables.
    """
    plain = record.model_dump(mode="json")
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _all(told: Iterable[str | None]) -> str:
    return ", ".join(sorted({one for one in told if one}))


def _in(partition: str | None) -> str:
    return f".{partition}" if partition else ""


def _code(version: str) -> Code:
    tracked = _git("ls-files", "--error-unmatch", "--", str(_PACKAGE / "__init__.py"))
    sha = _git("rev-parse", "HEAD") if tracked else None
    changes = uncommitted() if sha else None
    return Code(
        version=version,
        git_sha=sha.decode().strip() if sha else None,
        dirty=bool(changes) if sha else None,
        changes=bytes_digest(changes) if changes else None,
        sources=_sources(),
    )


def uncommitted() -> bytes:
    """The difference of the checkout to its commit, then untracked files with their sizes.

    Empty where there is none. Kept beside the record, it lets a dirty run be repeated.
    """
    difference = _git("diff", "HEAD", "--no-ext-diff", "--no-color", "--binary") or b""
    untracked = _git("ls-files", "--others", "--exclude-standard", "-z") or b""
    names = sorted(name for name in untracked.decode().split("\0") if name)
    lines = [f"untracked {name} {_size(_PROJECT / name)}\n" for name in names]
    return difference + "".join(lines).encode()


def _git(*arguments: str) -> bytes | None:
    """What git says about the checkout of this package; None where it is none, or git is absent."""
    try:
        done = subprocess.run(
            ["git", "-C", str(_PROJECT), *arguments],
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _sources() -> str:
    files = sorted(_PACKAGE.rglob("*.py"))
    return digest_of({f.relative_to(_PACKAGE).as_posix(): file_digest(f) for f in files})


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0
