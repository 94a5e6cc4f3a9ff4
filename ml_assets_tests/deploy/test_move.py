"""A digest goes from overlay to overlay: the steps of move.yaml, run on a repository of its own."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ml_assets_tests.deploy import rules

PROJECT = Path(__file__).parents[2]
MOVE = yaml.safe_load((PROJECT / ".github" / "workflows" / "move.yaml").read_text())
STEPS = [step["run"] for step in MOVE["jobs"]["move"]["steps"] if "run" in step]
REGISTRY = "ghcr.io/somebody/ml-assets"
NEW = {"orchestrator": "sha256:" + "a1" * 32, "training": "sha256:" + "b2" * 32}
NONE = "sha256:" + "0" * 64
OVERLAYS = ("dev", "staging", "production")


def git(folder: Path, *arguments: str) -> str:
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    who = ("-c", "user.name=tests", "-c", "user.email=tests@example.com")
    done = subprocess.run(
        ["git", *who, *arguments],
        cwd=folder,
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """What the workflow checks out and pushes to: deploy/, with no image built yet."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed: there is no Kustomize")
    folder = tmp_path / "origin"
    shutil.copytree(PROJECT / "deploy", folder / "deploy")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "deploy")
    git(folder, "config", "receive.denyCurrentBranch", "updateInstead")
    return folder


def moved(
    origin: Path, checkout: Path, overlay: str, digests: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """The job `move`, from its checkout to its push."""
    git(origin.parent, "clone", "--quiet", "--branch=main", str(origin), str(checkout))
    inputs = {"OVERLAY": overlay, "REPOSITORY": REGISTRY, "GITHUB_SHA": "c0ffee" * 7}
    inputs |= {name.upper(): digest for name, digest in digests.items()}
    environment = os.environ | inputs | {"GIT_CONFIG_GLOBAL": os.devnull}
    done = None
    for step in STEPS:
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step],
            cwd=checkout,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return done
    assert done is not None
    return done


def images(origin: Path, overlay: str) -> set[str]:
    """Our images that would run there, with the one that the settings hand to training."""
    built = subprocess.run(
        ["kubectl", "kustomize", str(origin / "deploy" / "overlays" / overlay)],
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[dict[str, Any]] = list(yaml.safe_load_all(built.stdout))
    named = {container["image"] for _, container in rules.containers(found)}
    (settings,) = [one["data"] for one in found if one["kind"] == "ConfigMap" and is_settings(one)]
    return {i for i in named if "/oauth2-proxy" not in i} | {settings["ML_ASSETS_TRAINING_IMAGE"]}


def is_settings(one: dict[str, Any]) -> bool:
    return one["metadata"]["name"] == "ml-assets-settings"


def test_each_move_changes_one_overlay_and_nothing_else(origin: Path, tmp_path: Path) -> None:
    by_digest = {f"{REGISTRY}/{name}@{digest}" for name, digest in NEW.items()}
    for overlay, ahead in zip(OVERLAYS, (*OVERLAYS[1:], None), strict=True):
        done = moved(origin, tmp_path / overlay, overlay, NEW)
        assert done.returncode == 0, done.stderr
        changed = git(origin, "diff", "--name-only", "HEAD~1", "HEAD").split()
        assert changed == [f"deploy/overlays/{overlay}/kustomization.yaml"]
        assert images(origin, overlay) == by_digest
        assert ahead is None or all(image.endswith(NONE) for image in images(origin, ahead))
    assert images(origin, "spot") == by_digest


def test_the_same_digest_again_is_no_commit(origin: Path, tmp_path: Path) -> None:
    assert moved(origin, tmp_path / "one", "dev", NEW).returncode == 0
    before = git(origin, "rev-parse", "main")
    assert moved(origin, tmp_path / "two", "dev", NEW).returncode == 0
    assert git(origin, "rev-parse", "main") == before


@pytest.mark.parametrize(
    ("overlay", "wrong"),
    [
        ("dev", {"training": "latest"}),
        ("dev", {"training": "sha256:" + "b2" * 31}),
        ("dev", {"training": "sha256:" + "b2" * 32 + "\nx"}),
        ("dev", {"orchestrator": "sha256:$(id)"}),
        ("nowhere", {}),
    ],
)
def test_what_is_no_digest_or_no_overlay_is_refused_and_nothing_is_pushed(
    overlay: str, wrong: dict[str, str], origin: Path, tmp_path: Path
) -> None:
    before = git(origin, "rev-parse", "main")
    done = moved(origin, tmp_path / "checkout", overlay, NEW | wrong)
    assert done.returncode == 64
    assert done.stderr.startswith("move.sh: ")
    assert git(tmp_path / "checkout", "status", "--short") == ""
    assert git(origin, "rev-parse", "main") == before
