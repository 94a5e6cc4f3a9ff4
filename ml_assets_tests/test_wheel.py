"""The wheel is whole: installed elsewhere, in an empty folder, the commands work."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

PROJECT = Path(__file__).parent.parent
PACKAGE = PROJECT / "ml_assets"
NOT_OF_THE_PACKAGE = ("__pycache__",)

Call = Callable[..., str]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `pip wheel` builds it, from what is committed."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    shutil.copytree(
        PACKAGE, source / "ml_assets", ignore=shutil.ignore_patterns(*NOT_OF_THE_PACKAGE)
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, source)
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    subprocess.run([*pip, "--wheel-dir", str(out), str(source)], check=True)
    [built] = out.glob("*.whl")
    return built


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Call:
    """ml-assets of the wheel in an empty folder; what it needs is where the tests have it."""
    empty = tmp_path / "empty"
    empty.mkdir()
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ML_ASSETS_", "DAGSTER_"))}
    environment = {**kept, "PYTHONPATH": str(tmp_path / "site")}

    def call(*program: str) -> str:
        done = subprocess.run(
            [sys.executable, *program],
            cwd=empty,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return call


def test_it_holds_every_file_of_the_package(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    files = {
        file.relative_to(PROJECT).as_posix()
        for file in PACKAGE.rglob("*")
        if file.is_file() and not {*file.parts} & {*NOT_OF_THE_PACKAGE}
    }
    assert files - packed == set()


def test_its_commands_make_a_state_folder_anywhere(installed: Call, tmp_path: Path) -> None:
    where = installed("-c", "import ml_assets; print(ml_assets.__file__)")
    assert where.startswith(str(tmp_path / "site"))
    installed("-m", "ml_assets.cli.main", "ops", "gc", "--dry-run")
    assert (tmp_path / "empty" / ".ml_assets" / "dagster" / "dagster.yaml").is_file()


@pytest.mark.daemon
@pytest.mark.timeout(900)
def test_its_demo_releases_a_model(installed: Call) -> None:
    installed("-m", "ml_assets.cli.main", "demo")
    assert "released" in installed("-m", "ml_assets.cli.main", "status", "flight_delays").lower()
