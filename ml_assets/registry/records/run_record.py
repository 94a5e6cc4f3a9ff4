"""The run record: all that is needed to make a model again, and to say where a repeat differed.

Code, environment, configuration, exact inputs, seed, machine and outputs, as one JSON document.
"""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

import ml_assets
from ml_assets.spec.base import Digest, Frozen, unset
from ml_assets.spec.canonical import digest_of
from ml_assets.spec.events import Lost
from ml_assets.spec.program import World
from ml_assets.spec.records import InputVersion, StageRecord, Time
from ml_assets.storage.layout import Address

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
    """Which sources ran."""

    version: str
    """Of the package."""
    git_sha: str | None
    """None where the package does not run from a checkout of its own."""
    dirty: bool | None
    changes: Digest | None
    """Of the difference to the commit, see ``uncommitted``; None where clean."""
    sources: Digest
    """Of every source file of the package: says the same without git."""


class Machine(Frozen):
    system: str
    machine: str
    cpu: str
    cores: int
    memory_bytes: int | None
    gpus: tuple[str, ...] = Field(strict=False)
    gpu_driver: str | None


class Environment(Frozen):
    """What the code ran in."""

    code: Code
    lock: Digest | None
    """Of requirements.lock; None where the package was installed without it."""
    python: str
    packages: dict[str, str]
    """Every installed distribution -> version."""
    machine: Machine


class RunInput(InputVersion):
    """An exact input, with what was in it."""

    rows: int | None
    path: str
    """Of its record in the snapshot store, at ``commit``; without one: what the spec calls it."""


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
    inputs: tuple[RunInput, ...] = Field(strict=False)
    outputs: dict[str, str]
    """Name -> digest: the model, the weights, the report, the training set, ..."""
    metrics: dict[str, float]
    salt: str | None = Field(default=None, exclude_if=unset)
    """Of a training that was asked for afresh: it is in the session's name, and in no result."""
    lost: tuple[Lost, ...] = Field(default=(), strict=False, exclude_if=unset)
    """Attempts that ended without a result, oldest first, and why."""
    time: Time


def environment() -> Environment:
    """What this process runs in. It asks git, and reads a few files; nothing is imported."""
    lock, packages = _PROJECT / "requirements.lock", _packages()
    return Environment(
        code=_code(packages.get("ml_assets", "unknown")),
        lock=_sha256(lock.read_bytes()) if lock.is_file() else None,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        packages=packages,
        machine=_machine(),
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
) -> RunRecord:
    """Put a record together.

    Args:
        found: where it ran, from ``environment()``.
        config: the pipeline's spec, resolved.
        inputs: what was read, from ``run_input``.
        outputs: name -> digest of what was made.
    """
    plain = config.model_dump(mode="json")
    return RunRecord(
        reproduces=_reproduces(found, plain, seed, inputs),
        pipeline=pipeline,
        session=session,
        run=run,
        environment=found,
        config=plain,
        config_digest=digest_of(plain),
        seed=seed,
        world=world,
        inputs=tuple(inputs),
        outputs=dict(outputs),
        metrics=dict(metrics),
        salt=salt,
        time=datetime.now(UTC),
    )


def contradiction(record: RunRecord) -> str:
    """Which of a record's own digests is not of what it says; empty where all are."""
    if digest_of(record.config) != record.config_digest:
        return "its config is not what its config_digest names"
    seed = record.config.get("training", {}).get("seed")
    if seed != record.seed:
        return f"its seed is {record.seed}, its config says training.seed {seed}"
    asked = _reproduces(record.environment, record.config, record.seed, record.inputs)
    if asked != record.reproduces:
        return "its code, lock, inputs or seed are not what it names itself by (reproduces)"
    return ""


def _reproduces(
    found: Environment, config: Mapping[str, Any], seed: int, inputs: Sequence[RunInput]
) -> str:
    asked = {
        "code": found.code.sources,
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
        "env.python": found.python,
        "env.system": f"{found.machine.system} {found.machine.machine}",
        "env.cpu": f"{found.machine.cores} x {found.machine.cpu}",
        "env.gpus": ", ".join(found.machine.gpus) or "none",
        "config.digest": record.config_digest,
        "seed": str(record.seed),
        "data.commit": ", ".join(sorted({i.commit for i in record.inputs if i.commit})),
    }
    tags |= {f"data.{i.key}{_in(i.partition)}": i.version for i in record.inputs}
    tags |= {f"output.{name}": digest for name, digest in record.outputs.items()}
    tags |= {f"env.{n}": found.packages[n] for n in MAIN_PACKAGES if n in found.packages}
    return tags


def record_bytes(record: RunRecord) -> bytes:
    """The record as it is stored and attached: the order of the config's mappings is the spec's.

    The columns of a source are in that order in its tables.
    """
    plain = record.model_dump(mode="json")
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


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
        changes=_sha256(changes) if changes else None,
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
    return digest_of({f.relative_to(_PACKAGE).as_posix(): _sha256(f.read_bytes()) for f in files})


def _packages() -> dict[str, str]:
    told = [distribution.metadata for distribution in distributions()]  # each is parsed anew
    found = {one["Name"]: one["Version"] for one in told if one["Name"]}
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def _machine() -> Machine:
    gpus = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    driver = Path("/proc/driver/nvidia/version")
    return Machine(
        system=platform.platform(),
        machine=platform.machine(),
        cpu=_field(Path("/proc/cpuinfo"), "model name") or platform.processor() or "unknown",
        cores=os.cpu_count() or 1,
        memory_bytes=_memory(),
        gpus=tuple(_field(gpu, "Model") or "unknown" for gpu in gpus),
        gpu_driver=driver.read_text().splitlines()[0] if driver.is_file() else None,
    )


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


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
