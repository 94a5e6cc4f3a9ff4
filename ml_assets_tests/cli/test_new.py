"""ml-assets new: a folder that passes the check and runs at once, on made-up orders."""

from pathlib import Path

import pytest

from ml_assets.assets.evaluation_report.stored_report import read_report
from ml_assets.settings import read_settings
from ml_assets.spec.gates import LeakAlarm
from ml_assets.spec.load import load_spec
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.conftest import Cli


def test_a_new_pipeline_runs_at_once_to_a_release(room: Path, cli: Cli) -> None:
    cli("new", "orders")
    cli("check", "orders")
    said = cli("run", "orders").out
    assert "production is model" in said
    found = read_report(open_pipeline("orders", read_settings()).now()).recommendation
    assert found is not None
    assert (f"note: {found.reason}" in said) is not found.keep


def test_the_first_pipeline_makes_the_folder_that_is_named_for_it(room: Path, cli: Cli) -> None:
    assert "run `ml-assets new NAME`" in cli("check", code=1).err
    assert "first: export" not in cli("new", "orders").out
    cli("check", "orders")


def test_a_file_in_the_place_of_the_folder_is_left_as_it_is(room: Path, cli: Cli) -> None:
    room.write_text("mine")
    assert "is not a folder" in cli("new", "orders", code=1).err
    cli("new", "orders", "--into", str(room), code=1)
    assert room.read_text() == "mine"


def test_where_no_folder_is_named_it_is_made_here(
    room: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.delenv("ML_ASSETS_PIPELINES")
    monkeypatch.chdir(room.parent)
    assert f"first: export ML_ASSETS_PIPELINES=demo:{room}\n" in cli("new", "orders").out
    assert (room / "orders" / "defs.yaml").is_file()


def test_a_folder_of_its_own_joins_those_that_are_known(
    room: Path, tmp_path: Path, cli: Cli
) -> None:
    other = tmp_path / "other"
    said = cli("new", "orders", "--into", str(other)).out
    assert f"first: export ML_ASSETS_PIPELINES={room}:{other}\n" in said


def test_a_new_spec_is_short(room: Path, cli: Cli) -> None:
    cli("new", "orders")
    lines = (room / "orders" / "defs.yaml").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) < 60


@pytest.mark.parametrize("name", ["Orders", "../orders", "1st", "a b", "a" * 80])
def test_a_name_that_cannot_be_one_is_refused(room: Path, cli: Cli, name: str) -> None:
    assert "cannot name a pipeline" in cli("new", name, code=1).err
    assert not list(room.parent.glob("[Oo1a]*"))


def test_a_folder_that_is_there_is_left_as_it_is(room: Path, cli: Cli) -> None:
    cli("new", "orders")
    (room / "orders" / "features.py").write_text("# mine")
    cli("new", "orders", code=1)
    assert (room / "orders" / "features.py").read_text() == "# mine"


def test_dg_scaffolds_the_same_folder(room: Path, cli: Cli) -> None:
    import dagster as dg

    from ml_assets.component import PipelineScaffolder

    target = room / "orders"
    target.mkdir(parents=True)  # dg makes it first
    request = dg.ScaffoldRequest(
        type_name="ml_assets.component.TrainingPipeline",
        target_path=target,
        scaffold_format="yaml",
        project_root=None,
        params=None,
    )
    PipelineScaffolder().scaffold(request)
    cli("check", "orders")


def test_a_folder_with_a_network_of_its_own_is_good(room: Path, cli: Cli) -> None:
    cli("new", "orders", "--network")
    cli("check", "orders")
    assert load_spec(room / "orders").model.family == "module"
    network = room / "orders" / "network.py"
    network.write_text(network.read_text().replace("import torch\n", "import polars_of_mine\n", 1))
    assert "polars_of_mine" in cli("check", "orders", code=1).out


@pytest.mark.parametrize(
    ("task", "alarm_of"),
    [
        ("binary", ("auc", 0.995)),
        ("multiclass", ("log_loss", 0.0082)),
        ("regression", ("r2", 0.99)),
    ],
)
def test_a_network_on_made_up_orders_may_be_told_the_task(
    room: Path, cli: Cli, task: str, alarm_of: tuple[str, float]
) -> None:
    assert f"orders: {task} on 600 rows" in cli("new", "orders", "--network", "--task", task).out
    cli("check", "orders")
    spec = load_spec(room / "orders")
    assert spec.label.task == task
    (alarm,) = [gate for gate in spec.gates if isinstance(gate, LeakAlarm)]
    assert (alarm.metric, alarm.bound) == alarm_of
    assert spec.leaks.target_proxy.bound == (0.95 if task == "binary" else None)


@pytest.mark.daemon
def test_the_scaffolded_network_conforms_and_is_trained(room: Path, cli: Cli) -> None:
    cli("new", "orders", "--network")
    said = cli("check", "orders", "--deep").out
    assert said.count("[pass]") == 9
    assert "[pass] memory: A process holds at least 0.0" in said
    network = room / "orders" / "network.py"
    network.write_text(
        network.read_text().replace("return self.last(x)", "return self.last(x - x.mean(0))")
    )
    assert "[FAIL] no_batch_leak" in cli("check", "orders", "--deep", code=1).out
    network.write_text(network.read_text().replace("x - x.mean(0)", "x"))
    cli("run", "orders", "--through", "trained_model")
