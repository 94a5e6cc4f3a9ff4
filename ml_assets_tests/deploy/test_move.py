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
OLD = {"orchestrator": "sha256:" + "c3" * 32, "training": "sha256:" + "d4" * 32}
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
    origin: Path,
    checkout: Path,
    overlay: str,
    digests: dict[str, str],
    commit: str = "",
    hook: str = "",
) -> subprocess.CompletedProcess[str]:
    """The job `move` of a commit (else: of the newest), from its checkout to its push; the hook is
    run between its commit and that."""
    git(origin.parent, "clone", "--quiet", "--branch=main", str(origin), str(checkout))
    between = checkout / ".git" / "hooks" / "post-commit"
    between.write_text(f"#!/bin/sh\nunset GIT_DIR GIT_INDEX_FILE\n{hook}\n")
    between.chmod(0o755)
    commit = commit or git(origin, "rev-parse", "main").strip()
    inputs = {"OVERLAY": overlay, "REPOSITORY": REGISTRY, "GITHUB_SHA": commit}
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


def pushed(origin: Path, file: str) -> str:
    """A commit of somebody else's."""
    (origin / file).write_text(file)
    git(origin, "add", file)
    git(origin, "commit", "--quiet", "--message", file)
    return git(origin, "rev-parse", "main").strip()


def test_a_commit_that_is_approved_late_does_not_move_an_overlay_back(
    origin: Path, tmp_path: Path
) -> None:
    older = git(origin, "rev-parse", "main").strip()
    newer = pushed(origin, "newer")
    assert moved(origin, tmp_path / "newer", "production", NEW, newer).returncode == 0
    before = git(origin, "rev-parse", "main")

    done = moved(origin, tmp_path / "older", "production", OLD, older)
    assert done.returncode == 1
    assert f"production was moved to {newer} already" in done.stdout
    assert git(origin, "rev-parse", "main") == before
    assert moved(origin, tmp_path / "staging", "staging", OLD, older).returncode == 0
    assert moved(origin, tmp_path / "again", "production", OLD, newer).returncode == 0


def test_what_was_pushed_meanwhile_is_kept_and_the_move_is_made_on_it(
    origin: Path, tmp_path: Path
) -> None:
    """Even if it is the same overlay, moved by an older commit: git alone could not join them."""
    older = git(origin, "rev-parse", "main").strip()
    newer = pushed(origin, "newer")
    assert moved(origin, tmp_path / "older", "dev", OLD, older).returncode == 0
    theirs = git(origin, "rev-parse", "main").strip()
    git(origin, "reset", "--quiet", "--hard", newer)
    meanwhile = f"git -C {origin} merge --quiet --ff-only {theirs}"

    done = moved(origin, tmp_path / "checkout", "dev", NEW, newer, meanwhile)
    assert done.returncode == 0, done.stderr
    assert git(origin, "rev-parse", "main~1").strip() == theirs
    assert images(origin, "dev") == {f"{REGISTRY}/{name}@{digest}" for name, digest in NEW.items()}


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
