"""The steps of the workflows, run as they stand.

Programs that would take long, or that are not here, are stood in for by ones that write down how
they were called. The Makefile is the real one; what it calls in its environment is not.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pytest
import yaml

from ml_assets.settings import read_cluster

PROJECT = Path(__file__).parents[2]
STEPS: list[str] = [
    step["run"]
    for file in sorted((PROJECT / ".github" / "workflows").glob("*.yaml"))
    for job in yaml.safe_load(file.read_text())["jobs"].values()
    for step in job.get("steps", ())
    if "run" in step
]
IMAGE = "localhost:5001/training@sha256:" + "5" * 64


@dataclass
class Machine:
    """One of GitHub's, as a step sees it."""

    root: Path
    settings: dict[str, str] = field(default_factory=dict)
    said: str = ""
    errors: str = ""

    def fake(self, name: str, does: str = ":") -> None:
        """Put a program in the way that writes down its arguments, and then does this."""
        (self.root / "bin").mkdir(exist_ok=True)
        file = self.root / "bin" / name
        note = """{ printf '%s\\037' "${0##*/}" "$@"; echo; } >> "$CALLS\""""
        file.write_text(f"#!/bin/sh\n{note}\n{does}\n")
        file.chmod(0o755)

    def environment_of_ours(self, does: str = ":") -> None:
        """An environment that is whole by its marks, for make: its programs are fakes."""
        venv = self.root / "venv"
        venv.mkdir()
        for name in ("python", "ml-assets"):
            self.fake(name, does)
        (venv / "bin").symlink_to(self.root / "bin")
        for mark in (".installed", ".installed-test"):
            (venv / mark).touch()
        self.settings["MAKEFLAGS"] = f"VENV={venv}"

    def run(self, begins: str, folder: Path = PROJECT) -> int:
        """Run the one step that begins so, as GitHub's bash does; its exit code."""
        (text,) = [one for one in STEPS if one.startswith(begins)]
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-c", text],
            cwd=folder,
            env={
                "PATH": f"{self.root / 'bin'}{os.pathsep}{os.environ['PATH']}",
                "HOME": str(self.root),
                "CALLS": str(self.root / "calls"),
                "RUNNER_TEMP": str(self.root / "temp"),
                **{f"GITHUB_{name}": str(self.root / name) for name in ("ENV", "OUTPUT")},
                "GITHUB_STEP_SUMMARY": str(self.root / "SUMMARY"),
                **self.settings,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        self.said, self.errors = done.stdout, done.stderr
        return done.returncode

    def wrote(self, name: str) -> str:
        """What the step handed on: ``ENV``, ``OUTPUT`` or ``SUMMARY``."""
        return (self.root / name).read_text()

    @property
    def calls(self) -> list[list[str]]:
        file = self.root / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.split("\037")[:-1] for line in lines]

    @cached_property
    def temp(self) -> Path:
        (self.root / "temp").mkdir()
        return self.root / "temp"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    found = Machine(tmp_path)
    assert found.temp.is_dir()
    return found


PYTEST = ["python", "-m", "pytest", "-q"]
MADE = {
    "make demo": [["ml-assets", "demo"]],
    "make test PYTHON": [[*PYTEST, "-n", "3", "--dist", "loadfile"]],
    "make long": [[*PYTEST, "-n", "3", "--dist", "loadfile", "-m", "daemon or plants or servers"]],
    "make test-cluster": [[*PYTEST, "-m", "not daemon"]],
    "sudo env": [["python", "-m", "ml_assets_tests.faults", "--minutes", "20", "--seed", "17000"]],
}
"""How a step begins -> how each program begins that its target calls, the first of them."""


@pytest.mark.parametrize("begins", MADE)
def test_a_target_of_make_calls_what_is_there_and_fails_with_it(
    begins: str, machine: Machine
) -> None:
    machine.environment_of_ours('echo "cluster: $ML_ASSETS_TEST_KUBECONFIG"')
    machine.fake("sudo", 'exec "$@"')
    machine.settings["GITHUB_RUN_NUMBER"] = "17"
    assert machine.run(begins) == 0, machine.errors
    called = [call for call in machine.calls if call[0] != "sudo"]
    for call, known in zip(called, MADE[begins], strict=False):
        assert call[: len(known)] == known
    paths = [word for call in called for word in call if word.startswith("ml_assets_tests/")]
    assert [path for path in paths if not (PROJECT / path).exists()] == []
    if begins == "make test-cluster":
        assert f"cluster: {machine.temp}/kubeconfig\n" in machine.said
        assert "ml_assets_tests/launch/kubernetes/test_lost_pod.py" in paths
    machine.fake("python", "exit 1")
    machine.fake("ml-assets", "exit 1")
    assert machine.run(begins) != 0


@pytest.mark.daemon
def test_the_fault_matrix_takes_the_arguments_of_its_step() -> None:
    command = [sys.executable, *MADE["sudo env"][0][1:], "--help"]
    assert subprocess.run(command, cwd=PROJECT, capture_output=True, check=False).returncode == 0


def test_the_wheel_is_installed_from_the_lock_in_a_folder_without_the_sources(
    machine: Machine,
) -> None:
    makes = 'mkdir -p .venv/bin; cp "${0%/*}/pip" "${0%/*}/ml-assets" .venv/bin'
    wheel = f"mkdir -p {machine.temp}/dist; touch {machine.temp}/dist/ml_assets-1.whl"
    machine.fake("python", f'case "$2" in venv) {makes};; pip) {wheel};; esac')
    machine.fake("pip")
    machine.fake("ml-assets", "ls")
    assert machine.run("python -m pip wheel") == 0, machine.errors
    built, made, installed, ran = machine.calls
    assert built[:4] == ["python", "-m", "pip", "wheel"] and built[-1] == "."
    assert made == ["python", "-m", "venv", ".venv"]
    wheel = f"{machine.temp}/dist/ml_assets-1.whl"
    assert installed == ["pip", "install", "--quiet", "-c", "requirements.lock", wheel]
    assert (ran, machine.said) == (["ml-assets", "demo"], "requirements.lock\n")


@pytest.mark.parametrize("image", ["orchestrator", "training"])
def test_an_image_is_built_from_its_file(image: str, machine: Machine) -> None:
    machine.fake("docker")
    file = f"deploy/images/{image}.Dockerfile"
    assert machine.run(f"docker build --quiet --file {file} .") == 0
    assert machine.calls == [["docker", "build", "--quiet", "--file", file, "."]]
    assert (PROJECT / file).is_file()


def test_each_overlay_renders_and_one_that_does_not_fails_the_job(machine: Machine) -> None:
    if shutil.which("kubectl"):
        assert machine.run("for overlay in") == 0, machine.errors
    machine.fake("kubectl", 'case "$2" in *staging*) exit 1;; esac')
    assert machine.run("for overlay in") == 1
    there = sorted(one.name for one in (PROJECT / "deploy" / "overlays").iterdir())
    rendered = [call[2].split("/")[2] for call in machine.calls]
    assert rendered == there[: there.index("staging") + 1], "it ends with the one that fails"


def test_the_nodes_of_the_cluster_are_led_to_the_registry_beside_them(machine: Machine) -> None:
    machine.fake("docker")
    machine.fake("kind", 'case "$1" in get) echo node-1; echo node-2;; *) cat;; esac')
    assert machine.run("docker run --detach --name registry") == 0, machine.errors
    registry, cluster, *_ = machine.calls
    assert registry[-3:] == ["--publish", "127.0.0.1:5001:5000", "registry:2"]
    assert cluster[:3] == ["kind", "create", "cluster"]
    assert f"{machine.temp}/kubeconfig" in cluster
    (patch,) = yaml.safe_load(machine.said)["containerdConfigPatches"]
    (plugin,) = tomllib.loads(patch)["plugins"].values()
    hosts = f"{plugin['registry']['config_path']}/localhost:5001"
    assert ["docker", "network", "connect", "kind", "registry"] in machine.calls
    made = [call[2:] for call in machine.calls if call[:2] == ["docker", "exec"]]
    assert [call[0] for call in made] == ["node-1", "node-1", "node-2", "node-2"]
    assert made[0][1:] == ["mkdir", "-p", hosts]
    written = made[1][1:]
    assert written[:2] == ["sh", "-c"] and f"> {hosts}/hosts.toml" in written[2]
    subprocess.run(["sh", "-c", written[2].replace(hosts, str(machine.temp))], check=True)
    said = tomllib.loads((machine.temp / "hosts.toml").read_text())
    assert said == {"host": {"http://registry:5000": {}}}


def test_the_training_image_of_the_cluster_is_handed_on_by_its_digest(machine: Machine) -> None:
    answers = f'inspect) echo {IMAGE};; network) printf "fc00::1\\n172.18.0.1\\n\\n";;'
    machine.fake("docker", f'case "$1" in {answers} esac')
    machine.settings["TORCH_INDEX"] = ""
    assert machine.run("docker build --quiet --file deploy/images/training.Dockerfile \\") == 0
    build, push, *_ = machine.calls
    assert build[-5:] == ["--build-arg", "TORCH_INDEX=", "--tag", "localhost:5001/training", "."]
    assert push == ["docker", "push", "--quiet", "localhost:5001/training"]
    handed = dict(line.split("=", 1) for line in machine.wrote("ENV").splitlines())
    assert handed["ML_ASSETS_TEST_ADDRESS"] == "172.18.0.1", "pods of kind have no IPv6"
    image = handed["ML_ASSETS_TEST_TRAINING_IMAGE"]
    given = {"ML_ASSETS_OBJECTS": "s3://bucket/state", "ML_ASSETS_TRAINING_IMAGE": image}
    assert read_cluster(given).image == IMAGE


def test_the_faults_of_the_night_are_shown(machine: Machine) -> None:
    assert machine.run("cat docs/faults.md") == 0
    assert machine.wrote("SUMMARY") == (PROJECT / "docs" / "faults.md").read_text()


def test_a_release_is_told_of_which_product_its_proof_is(machine: Machine) -> None:
    (machine.root / ".venv").mkdir()
    (machine.root / ".venv" / "bin").symlink_to(machine.root / "bin")
    machine.fake("python", f'cd "{PROJECT}" && exec "{sys.executable}" "$@"')
    assert machine.run(".venv/bin/python -m benchmarks proof", machine.root) == 0, machine.errors
    told = machine.wrote("SUMMARY")
    assert "The product here is `" in told and "- `docs/faults.md`: Of commit " in told


@pytest.mark.parametrize("broken", ["", "test", "check", "-m"])
def test_the_check_of_a_release_fails_with_each_of_its_parts(broken: str, machine: Machine) -> None:
    (machine.root / ".ci").mkdir()
    shutil.copy(PROJECT / ".ci" / "run", machine.root / ".ci")
    (machine.root / ".venv").mkdir()
    (machine.root / ".venv" / "bin").symlink_to(machine.root / "bin")
    for name in ("make", "python"):
        machine.fake(name, f'[ "$1" != "{broken}" ]')
    machine.fake("chromium")  # else it would be installed
    assert (machine.run(".ci/run", machine.root) == 0) == (broken == "")
    assert machine.calls[0] == ["make", "test", "PIP_ARGS=--quiet"]
    if broken != "test":
        walk = [*PYTEST, "-m", "daemon", "ml_assets_tests/test_walk_kubernetes.py", "-k"]
        assert [*walk, "pod_is_killed"] in machine.calls and (PROJECT / walk[-2]).is_file()


def test_the_base_is_named_by_digest_and_the_registry_in_lower_case(machine: Machine) -> None:
    machine.fake("docker", "echo sha256:123")
    machine.settings = {"BASE": "python:1", "REGISTRY": "ghcr.io", "OWNER_AND_NAME": "Me/ML_assets"}
    assert machine.run("digest=$(docker buildx imagetools inspect") == 0
    wrote = machine.wrote("OUTPUT")
    assert wrote == "base=python:1@sha256:123\nrepository=ghcr.io/me/ml_assets\n"


def test_each_image_is_run_without_rights_before_it_is_signed(machine: Machine) -> None:
    machine.fake("docker")
    machine.fake("cosign")
    machine.settings = {"ORCHESTRATOR": "one@sha256:1", "TRAINING": "two@sha256:2"}
    assert machine.run('run="docker run --rm --read-only') == 0, machine.errors
    assert [one for call in machine.calls for one in call if "@" in one] == [
        *("one@sha256:1", "one@sha256:1", "two@sha256:2", "two@sha256:2")
    ]
    for call in machine.calls:
        assert {"--read-only", "--cap-drop", "no-new-privileges"} <= set(call)
    program = machine.calls[1][-2]  # that ends with 1 where one of these modules can be found
    for names, code in ((["torch"], 1), (["no_such_module", "polars"], 1), (["no_such_module"], 0)):
        command = [sys.executable, "-c", program, *names]
        assert subprocess.run(command, check=False).returncode == code
    assert machine.run("cosign sign --yes") == 0
    assert machine.calls[-1] == ["cosign", "sign", "--yes", "one@sha256:1", "two@sha256:2"]
    machine.fake("docker", 'case "$*" in *torch.distributed*) exit 1;; esac')
    assert machine.run('run="docker run --rm --read-only') == 1


RUN_BY: dict[str, Callable[..., None] | str] = {
    "make ": test_a_target_of_make_calls_what_is_there_and_fails_with_it,
    "sudo env": test_a_target_of_make_calls_what_is_there_and_fails_with_it,
    "python -m pip": test_the_wheel_is_installed_from_the_lock_in_a_folder_without_the_sources,
    "docker build --quiet --file deploy/images/orchestrator": test_an_image_is_built_from_its_file,
    "docker build --quiet --file deploy/images/training.Dockerfile .": (
        test_an_image_is_built_from_its_file
    ),
    "docker build --quiet --file deploy/images/training.Dockerfile \\": (
        test_the_training_image_of_the_cluster_is_handed_on_by_its_digest
    ),
    "docker run --detach": test_the_nodes_of_the_cluster_are_led_to_the_registry_beside_them,
    "for overlay in": test_each_overlay_renders_and_one_that_does_not_fails_the_job,
    "cat docs/faults.md": test_the_faults_of_the_night_are_shown,
    ".venv/bin/python -m benchmarks": test_a_release_is_told_of_which_product_its_proof_is,
    ".ci/run": test_the_check_of_a_release_fails_with_each_of_its_parts,
    "helm template": "ml_assets_tests/deploy/test_workflows.py",
    "digest=$(docker": test_the_base_is_named_by_digest_and_the_registry_in_lower_case,
    'run="docker run': test_each_image_is_run_without_rights_before_it_is_signed,
    "cosign sign": test_each_image_is_run_without_rights_before_it_is_signed,
    'git config user.name "release workflow"': "ml_assets_tests/deploy/test_move.py",
}
"""How a step begins -> the test that runs it: one of these, or a file."""


def test_each_step_is_run_by_a_test() -> None:
    assert [one for one in STEPS if not one.startswith(tuple(RUN_BY))] == []
    idle = [begins for begins in RUN_BY if not any(one.startswith(begins) for one in STEPS)]
    assert idle == []
    made = [one for one in STEPS if one.startswith(("make ", "sudo env"))]
    assert [one for one in made if not one.startswith(tuple(MADE))] == []
    files = [answer for answer in RUN_BY.values() if isinstance(answer, str)]
    assert [file for file in files if not (PROJECT / file).is_file()] == []
