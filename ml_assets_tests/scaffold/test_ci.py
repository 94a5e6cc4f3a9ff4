"""A team's workflow, as ``new --ci`` writes it: its commands are run, sound and with plants."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ml_assets.actions.check.deep import converges, whole_model
from ml_assets.errors import StorageError
from ml_assets.spec.base import canonical_json
from ml_assets.spec.training import Mlp
from ml_assets.spec.training_program import File, ModelManifest, Preprocessing, Ref
from ml_assets.store.objects import file_digest
from ml_assets_tests.deploy.test_workflows import problems

STILL = "training: {learning_rate: 1.0e-07, warmup: 0.0, schedule: constant,"
NAN = """\
import torch
from torch import nn


class Network(nn.Module):
    \"\"\"After some calls its logits are no numbers.\"\"\"

    def __init__(self, columns):
        super().__init__()
        self.last = nn.Linear(len(columns.numeric), columns.outputs, bias=False)

    def forward(self, numeric, categorical):
        return self.last(numeric) / 0.0


def build(config, columns):
    return Network(columns)
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a team commits: a room with one pipeline, its workflow, a sample of its rows."""
    root = tmp_path_factory.mktemp("repository")
    environment = os.environ | {"ML_ASSETS_HOME": str(root / "state")}
    for name in ("ML_ASSETS_PIPELINES", "ML_ASSETS_SOURCES"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "ml_assets.cli.main", "new", "orders", "--ci", "--network"]
    subprocess.run(command, cwd=root, env=environment, check=True, stdin=subprocess.DEVNULL)
    shutil.rmtree(root / "state", ignore_errors=True)
    return root


def workflow(root: Path) -> dict[str, Any]:
    return yaml.safe_load((root / ".github" / "workflows" / "orders.yaml").read_text())


def ci(root: Path) -> tuple[str, str]:
    """Run the workflow's commands in a checkout: the step that is red (or none), and its words."""
    job = workflow(root)["jobs"]["orders"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ML_ASSETS_")}
    environment |= {**job["env"], "PATH": path, "ML_ASSETS_HOME": str(root / "state")}
    said = ""
    for step in job["steps"]:
        if "name" not in step:  # checkout, Python, and pip: they are GitHub's and the index's
            continue
        shell = ["bash", "--noprofile", "--norc", "-e", "-c", step["run"]]
        done = subprocess.run(
            shell, cwd=root, env=environment, capture_output=True, text=True, check=False
        )
        said = done.stdout + done.stderr
        if done.returncode:
            return step["name"], said
    return "", said


def without_the_rows(root: Path) -> None:
    (root / "ci" / "sources" / "orders" / "rows.parquet").unlink()


def without_the_contract(root: Path) -> None:
    (root / "pipelines" / "orders" / "contracts" / "rows.json").unlink()


def with_logits_that_are_no_numbers(root: Path) -> None:
    (root / "pipelines" / "orders" / "network.py").write_text(NAN)


def that_does_not_converge(root: Path) -> None:
    file = root / "pipelines" / "orders" / "defs.yaml"
    text = file.read_text()
    assert "training: {" in text
    file.write_text(text.replace("training: {", STILL, 1))


PLANTS: dict[Callable[[Path], None], tuple[str, str]] = {
    without_the_contract: ("spec, functions and contract are right", "rows.json"),
    without_the_rows: ("the training set is made, and the network is sound", "rows.parquet"),
    with_logits_that_are_no_numbers: (
        "the training set is made, and the network is sound",
        "nan",
    ),
    that_does_not_converge: (
        "ten steps converge, and leave a whole model",
        "10 steps do not converge: the validation loss stayed within",
    ),
}


@pytest.mark.daemon
def test_a_sound_pipeline_is_green(repository: Path, tmp_path: Path) -> None:
    root = shutil.copytree(repository, tmp_path / "checkout")
    red, said = ci(root)
    assert red == "", said
    assert "[pass] steps: 10 steps left a complete model" in said


@pytest.mark.daemon
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_plant_turns_it_red(
    plant: Callable[[Path], None], repository: Path, tmp_path: Path
) -> None:
    root = shutil.copytree(repository, tmp_path / "checkout")
    plant(root)
    red, said = ci(root)
    step, message = PLANTS[plant]
    assert red == step, said
    assert message in said
    assert "Traceback" not in said


def test_a_workflow_keeps_the_rules_of_ours(repository: Path) -> None:
    assert problems(workflow(repository)) == []
    text = (repository / ".github" / "workflows" / "orders.yaml").read_text()
    assert "__" not in text
    assert (repository / "ci" / "requirements.txt").read_text().count("ml_assets==") == 1
    assert [*(repository / "ci" / "sources").rglob("*.parquet")]


def test_losses_that_stay_or_rise_do_not_converge() -> None:
    assert converges([0.7, 0.69, 0.68]) == converges([0.7]) == ""
    assert "stayed within 0.01%" in converges([0.7, 0.70005])
    assert "rose from 0.7000 to 1.4000" in converges([0.7, 0.9, 1.4])


def test_a_model_without_its_weights_is_not_whole(tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(b"0" * 100)
    manifest = ModelManifest(
        model=Mlp(family="mlp"),
        task="binary",
        classes=(),
        preprocessing=Preprocessing(numeric=(), null_flags=(), categorical=()),
        weights=File(path=weights.name, size=100, sha256=file_digest(weights)),
        step=10,
    )
    (tmp_path / "model.json").write_bytes(canonical_json(manifest))
    model = Ref(uri=str(tmp_path), digest=file_digest(tmp_path / "model.json"))
    assert whole_model(model) == 100
    weights.write_bytes(b"1" * 100)
    with pytest.raises(StorageError, match="is damaged"):
        whole_model(model)
    weights.unlink()
    with pytest.raises(StorageError, match="is lost: its manifest names it"):
        whole_model(model)
