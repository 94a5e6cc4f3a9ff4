"""The workflows of CI: what they may do, and the way a digest goes. None is run."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).parents[2]
FOLDER = PROJECT / ".github" / "workflows"
WORKFLOWS = {file.stem: yaml.safe_load(file.read_text()) for file in FOLDER.glob("*.yaml")}
RELEASE = WORKFLOWS["release"]["jobs"]
ACTIONLINT = Path(sys.executable).with_name("actionlint")
CHECKOUT = "11bd71901bbe5b1630ceea73d27597364c9af683"
MAY_WRITE = {
    "images": {"packages", "id-token"},
    "dev": {"contents"},
    "staging": {"contents"},
    "production": {"contents"},
    "move": {"contents"},
}


def problems(workflow: dict[Any, Any]) -> list[str]:
    """What breaks a rule, one line a finding."""
    found = [] if workflow.get("permissions") == {} else ["the token may do anything by default"]
    events = workflow.get("on", workflow.get(True, {}))  # YAML 1.1 reads `on` as true
    found += [f"on {event}" for event in events if event in ("pull_request_target", "workflow_run")]
    group = workflow.get("concurrency", {}).get("group", "github.sha")
    if "push" in events and "github.sha" not in group:
        found.append("commits of a branch wait for each other, and all but the newest are dropped")
    for name, job in workflow["jobs"].items():
        if "environment" in job and "concurrency" in job:
            found.append(f"{name} holds up others while it waits for its approval")
        written = {scope for scope, may in job.get("permissions", {}).items() if may == "write"}
        found += [f"{name} may write {scope}" for scope in written - MAY_WRITE.get(name, set())]
        if "permissions" not in job:
            found.append(f"{name} says not what it may do")
        if "uses" not in job and "timeout-minutes" not in job:
            found.append(f"{name} may hang")
        for step in job.get("steps", ()):
            uses = step.get("uses", "")
            if uses and not re.fullmatch(r"\./[\w./-]+|[\w./-]+@[0-9a-f]{40}", uses):
                found.append(f"{name} uses {uses}")
            if "${{" in step.get("run", ""):
                found.append(f"{name} pastes an expression into a shell")
    return found


@pytest.mark.parametrize("name", sorted(WORKFLOWS))
def test_a_workflow_keeps_the_rules(name: str) -> None:
    assert problems(WORKFLOWS[name]) == []


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("permissions: {} # each", "permissions: write-all # each"),
        (f"actions/checkout@{CHECKOUT}", "actions/checkout@v4.2.2"),
        ("  pull_request:", "  pull_request_target:"),
        ("run: .ci/run", "run: make test ${{ github.head_ref }}"),
        ("    permissions:\n      contents: read\n    steps", "    steps"),
        ("      contents: read\n    steps", "      contents: write\n    steps"),
        ("&& github.ref || github.sha }}", "}} ${{ github.ref }}"),
        ("    environment:", "    concurrency: move\n    environment:"),
    ],
)
def test_a_planted_fault_is_found(was: str, becomes: str) -> None:
    text = (FOLDER / ("release.yaml" if "environment" not in was else "move.yaml")).read_text()
    assert was in text
    assert problems(yaml.safe_load(text.replace(was, becomes))) != []


LIMIT = "only_allow_user_defined_k8s_config_fields"


@pytest.mark.parametrize(
    ("coordinator", "limit", "kind", "ends"),
    [
        ("QueuedRunCoordinator", LIMIT, "Deployment", 0),
        ("SyncInMemoryRunCoordinator", LIMIT, "Deployment", 1),
        ("QueuedRunCoordinator", "job_image", "Deployment", 1),
        ("QueuedRunCoordinator", LIMIT, "RoleBinding", 1),
    ],
)
def test_a_chart_without_a_queue_or_limits_or_with_rights_of_its_own_fails_the_tests(
    coordinator: str, limit: str, kind: str, ends: int, tmp_path: Path
) -> None:
    """The step, with a Helm that renders this; ``limit``: what a run's tags may say of its pod."""
    (step,) = [one for one in RELEASE["test"]["steps"] if "helm" in one.get("run", "")]
    helm = tmp_path / "helm"
    chart = f'kind: {kind}\n  class: "{coordinator}"\n  {limit}:\n'
    helm.write_text(f"#!/bin/sh\ncat <<'END'\n{chart}END\n")
    helm.chmod(0o755)
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-c", step["run"]],
        env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "RUNNER_TEMP": str(tmp_path)},
        check=False,
    )
    assert done.returncode == ends


def test_a_digest_goes_from_the_build_to_dev_to_staging_to_production() -> None:
    way = ["images", "dev", "staging", "production"]
    assert RELEASE["images"]["needs"] == "test"
    for before, here in pairwise(way):
        needs = RELEASE[here]["needs"]
        assert before in ([needs] if isinstance(needs, str) else needs)
        given = RELEASE[here]["with"]
        assert given["overlay"] == here
        assert (PROJECT / "deploy" / "overlays" / here / "kustomization.yaml").is_file()
        for image in ("orchestrator", "training"):
            assert given[image] == f"${{{{ needs.images.outputs.{image} }}}}"


def test_each_image_is_built_once_from_the_same_base_and_signed() -> None:
    steps = RELEASE["images"]["steps"]
    builds = [step for step in steps if step.get("uses", "").startswith("docker/build-push")]
    files = sorted(step["with"]["file"] for step in builds)
    assert files == [f"deploy/images/{n}.Dockerfile" for n in ("orchestrator", "training")]
    assert all((PROJECT / file).is_file() for file in files)
    bases = {step["with"]["build-args"].splitlines()[0] for step in builds}
    assert bases == {"BASE=${{ steps.names.outputs.base }}"}
    (sign,) = [step for step in steps if step.get("name") == "sign"]
    assert set(sign["env"]) == {"ORCHESTRATOR", "TRAINING"}


@pytest.mark.skipif(not ACTIONLINT.exists(), reason="actionlint has no wheel for this machine")
def test_actionlint_finds_nothing_but_a_plant(tmp_path: Path) -> None:
    template = PROJECT / "ml_assets" / "scaffold" / "ci.yaml"
    files = [*FOLDER.glob("*.yaml"), template]
    done = subprocess.run([ACTIONLINT, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    planted = tmp_path / "planted.yaml"
    planted.write_text(template.read_text().replace("timeout-minutes:", "timeout-minute:"))
    done = subprocess.run([ACTIONLINT, planted], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "timeout-minute" in done.stdout
