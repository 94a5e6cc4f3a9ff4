"""The two images: what each can import, and how it is built. No image is built here."""

import pkgutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from ml_assets_tests.deploy import dockerfile
from ml_assets_tests.deploy.image_world import GROUPS, PROJECT, absent_modules, world_of
from ml_assets_tests.training.conftest import Sessions, data

__all__ = ["data"]  # the fixture: shards made once

IMAGES = PROJECT / "deploy" / "images"
FILES = [IMAGES / f"{group}.Dockerfile" for group in sorted(GROUPS)]
DECLARED = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
IMPORT_ALL = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    room = importlib.import_module(name)
    for module in pkgutil.walk_packages(getattr(room, "__path__", []), name + "."):
        if not module.name.endswith("__main__") and ".training" not in module.name[:20]:
            importlib.import_module(module.name)
"""
ADAPTERS = "dagster_aws.s3 dagster_k8s dagster_postgres kubernetes lakefs_client psycopg redis"


def python(world: Mapping[str, str], program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=PROJECT,
        env=dict(world),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr if done.returncode else ""


def test_the_orchestrators_webserver_is_the_guarded_one() -> None:
    """Under its own name too, which Dagster's Helm chart starts it by."""
    found = dockerfile.parse((IMAGES / "orchestrator.Dockerfile").read_text())
    (made,) = [one.rest for one in found if "dagster-webserver" in one.rest]
    assert made.endswith("> /opt/venv/bin/dagster-webserver")
    line = made.removeprefix("printf ").partition(" > ")[0].strip("'")
    assert line == '#!/bin/sh\\nexec /opt/venv/bin/python -m ml_assets.adapters.webserver "$@"\\n'


# --- what each image holds ------------------------------------------------------------------------


@pytest.mark.daemon
def test_the_orchestrator_needs_no_torch(tmp_path: Path) -> None:
    """All of the package but the training program, the code location, and every adapter."""
    assert {"torch", "lightgbm"} <= set(absent_modules("orchestrator"))
    world = world_of("orchestrator", tmp_path) | {"ML_ASSETS_HOME": str(tmp_path / "home")}
    rooms = {module.name for module in pkgutil.iter_modules([str(PROJECT / "ml_assets")])}
    assert {"training", "definitions", "launch", "store"} <= rooms
    ours = [f"ml_assets.{room}" for room in sorted(rooms - {"training"})]
    built = "import ml_assets.definitions as d; d.build(d.read_settings()).get_repository_def()"
    adapters = "".join(f"\nimport {name}" for name in ADAPTERS.split())
    assert python(world, IMPORT_ALL + built + adapters, *ours) == ""


@pytest.mark.daemon
def test_the_training_image_needs_no_dagster(
    tmp_path: Path, data: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training, torchrun, boosted trees and S3: as the image holds them."""
    assert {"dagster", "mlflow", "polars", "sklearn", "kubernetes"} <= set(
        absent_modules("training")
    )
    world = world_of("training", tmp_path)
    assert python(world, "import boto3, lightgbm, torch.distributed.run") == ""
    for name in ("PYTHONPATH", "ABSENT"):
        monkeypatch.setenv(name, world[name])
    attempt = Sessions(tmp_path, data).attempt("apart", procs=1)  # pyright: ignore[reportArgumentType]
    assert attempt.run() == 0


@pytest.mark.parametrize(("group", "module"), [("orchestrator", "torch"), ("training", "dagster")])
def test_what_an_image_does_not_hold_cannot_be_imported(
    tmp_path: Path, group: str, module: str
) -> None:
    said = python(world_of(group, tmp_path), f"import {module}")
    assert f"No module named '{module}'" in said


def test_the_groups_say_what_the_package_says() -> None:
    extras = DECLARED["optional-dependencies"]
    declared = set(DECLARED["dependencies"])
    for name, requirements in extras.items():
        declared |= set(requirements) if name != "test" else set()
    assert {line for group in GROUPS.values() for line in group} <= declared
    trees = {line for line in declared if line.startswith(("lightgbm", "xgboost"))}
    everything = declared - trees - {"torch>=2.13"}
    assert set(GROUPS["orchestrator"]) == everything


@pytest.mark.parametrize("package", ["libgomp1", "g++"])
def test_the_training_image_has_what_its_programs_take_of_the_system(package: str) -> None:
    """LightGBM its OpenMP, and ``training.compile`` a compiler, which slim has not."""
    last = (IMAGES / "training.Dockerfile").read_text().rpartition("\nFROM ")[2]
    (made,) = [one.rest for one in dockerfile.parse(f"FROM {last}") if "apt-get" in one.rest]
    assert package in made.partition("&& rm")[0].split()


# --- how each is built ----------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_image_keeps_the_rules(file: Path) -> None:
    assert dockerfile.problems(file.read_text()) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_image_takes_its_own_group(file: Path) -> None:
    group = file.name.removesuffix(".Dockerfile")
    text = " ".join(one.rest for one in dockerfile.parse(file.read_text()))
    assert f"--group {group}" in text
    assert group in GROUPS


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (":3.11-slim-bookworm", ":latest"),
        (":3.11-slim-bookworm", ""),
        ("USER 10001:10001", "USER root"),
        ("USER 10001:10001\n", ""),
        ("COPY ml_assets ml_assets", "COPY .env ml_assets"),
        ("ENV PATH", "ENV LAKEFS_SECRET_ACCESS_KEY=x PATH"),
        ("-c requirements.lock --group", "--group"),
        ("WORKDIR /opt/ml-assets\nUSER", "RUN apt-get install gcc\nUSER"),
        ("COPY README.md", "ADD README.md"),
    ],
)
def test_a_planted_fault_is_found(was: str, becomes: str) -> None:
    text = (IMAGES / "orchestrator.Dockerfile").read_text()
    assert was in text
    assert dockerfile.problems(text.replace(was, becomes)) != []


def test_nothing_is_sent_to_the_builder_but_what_is_copied() -> None:
    lines = (PROJECT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    sent = {line.removeprefix("!") for line in rules if line.startswith("!")}
    assert rules[0] == "*"
    assert sent == set().union(*map(dockerfile.copied, FILES)) == dockerfile.MAY_BE_COPIED
    assert all((PROJECT / name).exists() for name in sent)
