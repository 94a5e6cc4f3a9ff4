"""Your pipelines on the cluster, as docs/cluster.md says: the image, and what Dagster loads of it.

There is no builder here: what the Dockerfile says is done in a folder, in processes that find what
the image of the orchestrator holds and nothing else.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ml_assets_tests.deploy import dockerfile
from ml_assets_tests.deploy.image_world import PROJECT, world_of
from ml_assets_tests.deploy.test_location import PROGRAM
from ml_assets_tests.deploy.test_manifests import named, objects, secret_keys
from ml_assets_tests.deploy.test_page import DIGEST, commands
from ml_assets_tests.worlds import irises

FILE = PROJECT / "deploy" / "images" / "pipelines.Dockerfile"


@dataclass
class Image:
    """A root folder, as a container sees it, and what it is told by the environment."""

    root: Path
    world: dict[str, str]
    environment: dict[str, str] = field(default_factory=dict)
    users: list[str] = field(default_factory=list)
    failed: str = ""

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command in the image: what begins with ``/opt/`` lies below the root."""
        apart = {k: v for k, v in self.world.items() if not k.startswith("ML_ASSETS_")}
        return subprocess.run(
            command,
            cwd=self.root / "opt" / "ml-assets",
            env=apart
            | self.environment
            | {"ML_ASSETS_HOME": str(self.root / "home")}
            | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def inside(self, text: str) -> str:
        return text.replace("/opt/", f"{self.root}/opt/")


def built(file: Path, context: Path, folder: Path) -> Image:
    """What a Dockerfile makes of the orchestrator's image and a context."""
    root = folder / "root"
    package = root / "opt" / "ml-assets" / "ml_assets"
    shutil.copytree(PROJECT / "ml_assets", package, ignore=shutil.ignore_patterns("__pycache__"))
    walls, programs = folder / "walls", folder / "bin"
    for made in (walls, programs):
        made.mkdir()
    (programs / "ml-assets").write_text(
        f'#!/bin/sh\nexec {sys.executable} -m ml_assets.cli.main "$@"\n'
    )
    (programs / "ml-assets").chmod(0o755)
    world = world_of("orchestrator", walls) | {
        "PYTHONPATH": os.pathsep.join([str(walls), str(package.parent)]),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
    image = Image(root, world)
    for one in dockerfile.parse(file.read_text()):
        follow(one, image, context, file)
    return image


def follow(one: dockerfile.Instruction, image: Image, context: Path, file: Path) -> None:
    if one.word == "COPY":
        source, target = one.rest.split()
        left_out = shutil.ignore_patterns(*patterns(file))
        shutil.copytree(context / source, image.inside(target), ignore=left_out)
    elif one.word == "ENV":
        name, value = one.rest.split("=", 1)
        image.environment[name] = image.inside(value)
    elif one.word == "USER":
        image.users.append(one.rest)
    elif one.word == "RUN":
        done = image.run("sh", "-euc", image.inside(one.rest))
        if done.returncode:
            image.failed = done.stdout + done.stderr


def patterns(file: Path) -> list[str]:
    """Of its own .dockerignore, those that hold at any depth."""
    lines = file.with_name(f"{file.name}.dockerignore").read_text().splitlines()
    found = [line for line in lines if line and not line.startswith("#")]
    assert all(line.startswith("**/") for line in found)
    return [line.removeprefix("**/") for line in found]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Of a team's folder: a pipeline whose source is on S3, and what belongs into no image."""
    folder = tmp_path_factory.mktemp("pipelines")
    irises_folder = folder / "pipelines" / "irises"
    (irises_folder / "__pycache__").mkdir(parents=True)
    spec = irises_folder / "defs.yaml"
    spec.write_text(irises.SPEC.replace("path: irises", "path: s3://my-bucket/irises"))
    spec.chmod(0o600)  # of somebody whose umask is strict
    (irises_folder / "features.py").write_text(irises.FEATURES)
    (irises_folder / "flowers.json").write_text(json.dumps(irises.CONTRACT))
    (folder / "pipelines" / ".env").write_text("AWS_SECRET_ACCESS_KEY=hush")
    return built(FILE, folder / "pipelines", folder)


@pytest.mark.daemon
def test_dagster_loads_your_pipelines_in_the_place_of_the_demos(
    image: Image, tmp_path: Path
) -> None:
    """With the settings of production, in a pod whose disk is empty."""
    assert image.failed == ""
    settings = named(objects("production"), "ConfigMap", "ml-assets-settings")["data"]
    keys = dict.fromkeys(secret_keys("ml-assets-orchestrator"), "hush")
    given = {**settings, **keys, "ML_ASSETS_HOME": str(tmp_path / "home"), "DAGSTER_HOME": ""}
    done = image.run(sys.executable, "-c", PROGRAM, **given)
    assert done.returncode == 0, done.stderr
    found = set(json.loads(done.stdout.splitlines()[-1])["jobs"])
    assert {job for job in found if job.startswith("irises__")}
    assert not {job for job in found if job.startswith("flight_delays__")}


def test_everybody_may_read_them_and_nothing_hidden_is_among_them(image: Image) -> None:
    there = [*(image.root / "opt" / "pipelines").rglob("*")]
    files = {path.name for path in there if path.is_file()}
    assert files == {"defs.yaml", "features.py", "flowers.json"}
    assert {path.name for path in there if path.is_dir()} == {"irises"}
    assert all(path.stat().st_mode & 0o004 for path in there)
    assert image.users[-1] == "10001:10001"


def test_a_pipeline_that_is_wrong_becomes_no_image(image: Image) -> None:
    """By the last step, which is done as the user that the image has."""
    *_, last = dockerfile.parse(FILE.read_text())
    spec = image.root / "opt" / "pipelines" / "irises" / "defs.yaml"
    spec.write_text(spec.read_text().replace("width: 32", "width: broad"))
    follow(last, image, image.root, FILE)
    assert "model.width is 'broad'" in image.failed


def test_the_page_builds_it_on_ours_and_gives_it_the_name_that_is_moved() -> None:
    lines = commands("Your pipelines").splitlines()
    ours, ours_pushed, build, push = (shlex.split(line, comments=True) for line in lines)
    assert PROJECT / ours[3] == FILE.with_name("orchestrator.Dockerfile")
    assert ours[5] == ours_pushed[2] and ours[-1] == "."
    options = dict(zip(build[2:-1:2], build[3:-1:2], strict=True))
    assert build[:2] == ["docker", "build"] and push[:2] == ["docker", "push"]
    assert PROJECT / options["--file"] == FILE
    declared = {
        one.rest.partition("=")[0]
        for one in dockerfile.parse(FILE.read_text())
        if one.word == "ARG"
    }
    name, _, base = options["--build-arg"].partition("=")
    assert declared == {name}
    assert base.endswith(f"/orchestrator@{DIGEST}")
    assert options["--tag"] == push[2]
    assert push[2].split("/")[-1].split(":")[0] == "orchestrator"
