"""What a team's file imports from beside it: found, kept apart, counted, missed with a reason."""

import os
import py_compile
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from ml_assets.assets.feature_set.feature_function import load_function
from ml_assets.errors import SpecError
from ml_assets.graph.code_version import code_version_of
from ml_assets_tests.conftest import Cli
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.opened import pipeline_of
from ml_assets_tests.worlds.world import World


def folder(root: Path, **files: str) -> Path:
    for name, text in files.items():
        file = root / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def answer(at: Path, pipeline: str = "p", file: str = "features.py") -> object:
    return load_function(at, f"{file}:build", pipeline)({}, None)  # pyright: ignore[reportArgumentType]


BUILD = "def build(tables, window):\n    return {}\n"


@pytest.mark.parametrize(
    "features",
    [
        "import helpers\n" + BUILD.format("helpers.answer()"),
        "from helpers import answer\n" + BUILD.format("answer()"),
        "from .helpers import answer\n" + BUILD.format("answer()"),
        "from . import helpers as h\n" + BUILD.format("h.answer()"),
        "def build(tables, window):\n    import helpers\n    return helpers.answer()\n",
        "import more.deep\n" + BUILD.format("more.deep.answer()"),
        "from more import deep\n" + BUILD.format("deep.answer()"),
    ],
)
def test_a_file_beside_it_is_imported_as_one_writes_it(tmp_path: Path, features: str) -> None:
    helpers = "import constants\n\ndef answer():\n    return constants.ANSWER\n"
    deep = "from helpers import answer\n"
    folder(tmp_path, features=features, helpers=helpers, constants="ANSWER = 7", more__deep=deep)
    assert answer(tmp_path) == 7
    assert not {"helpers", "constants", "more"} & sys.modules.keys()


def test_pipelines_have_files_of_the_same_name(tmp_path: Path) -> None:
    features = "import helpers\n" + BUILD.format("helpers.ANSWER")
    one = folder(tmp_path / "one", features=features, helpers="ANSWER = 1")
    two = folder(tmp_path / "two", features=features, helpers="ANSWER = 2")
    assert [answer(one, "one"), answer(two, "two"), answer(one, "one")] == [1, 2, 1]


def test_an_edited_sibling_is_imported_again_within_the_same_second(tmp_path: Path) -> None:
    features = "import helpers\n" + BUILD.format("helpers.ANSWER")
    for number in (1, 2):
        folder(tmp_path, features=features, helpers=f"ANSWER = {number}")
        assert answer(tmp_path) == number
    assert not list(tmp_path.rglob("__pycache__"))


def test_siblings_may_import_each_other_in_a_circle(tmp_path: Path) -> None:
    features = "import helpers\nANSWER = 7\n" + BUILD.format("helpers.answer()")
    helpers = "import features\n\ndef answer():\n    return features.ANSWER\n"
    assert answer(folder(tmp_path, features=features, helpers=helpers)) == 7


def test_a_missing_sibling_is_named_with_its_line_and_what_is_there(tmp_path: Path) -> None:
    folder(tmp_path, features="import math\nimport helprs\n", helpers="")
    with pytest.raises(SpecError) as told:
        answer(tmp_path)
    said = str(told.value)
    assert said.startswith(f"{tmp_path / 'features.py'}, line 2, cannot be imported")
    assert f"'helprs' is neither a file in {tmp_path} (there is features, helpers)" in said
    assert "Did you mean 'helpers'? Create helprs.py there" in said


@pytest.mark.parametrize(
    "features",
    [
        "from .fast import f\n",
        "from . import fast\n",
        "from .more.fast import f\n",
        "import fast\n",
    ],
)
@pytest.mark.parametrize("ending", [".pyc", EXTENSION_SUFFIXES[0]])
def test_a_compiled_module_is_not_imported_for_no_code_version_sees_into_it(
    tmp_path: Path, features: str, ending: str
) -> None:
    folder(tmp_path, features=features + BUILD, source="f = 1\n", more__other="")
    for place in (tmp_path, tmp_path / "more"):
        made = place / f"fast{ending}"
        py_compile.compile(str(tmp_path / "source.py"), cfile=str(made), doraise=True)
    with pytest.raises(SpecError, match=r"features.py, line 1, cannot be imported") as refused:
        answer(tmp_path)
    absolute = features.startswith("import")
    assert ("nor an installed package" if absolute else "is compiled") in str(refused.value)


def test_a_compiled_module_does_not_hide_a_file_of_its_name(tmp_path: Path) -> None:
    features = "from .fast import f\n" + BUILD.format("f")
    at = folder(tmp_path, features=features, fast="f = 7\n")
    (tmp_path / f"fast{EXTENSION_SUFFIXES[0]}").write_bytes(b"")
    with pytest.raises(SpecError, match="is compiled"):
        answer(at)


def test_what_a_sibling_misses_is_said_of_the_sibling(tmp_path: Path) -> None:
    folder(tmp_path, features="import helpers\n", helpers="\nfrom constants import LIMIT\n",
           constants="")  # fmt: skip
    with pytest.raises(SpecError) as told:
        answer(tmp_path)
    said = str(told.value)
    assert said.startswith(f"{tmp_path / 'helpers.py'}, line 2, so {tmp_path / 'features.py'}")
    assert "cannot import name 'LIMIT' from 'constants'" in said


def test_an_import_that_may_fail_may_fail(tmp_path: Path) -> None:
    features = "try:\n    import not_there\nexcept ImportError:\n    not_there = 7\n"
    assert answer(folder(tmp_path, features=features + BUILD.format("not_there"))) == 7


def test_a_file_that_is_mended_is_imported_again(tmp_path: Path) -> None:
    features = "import helpers\n" + BUILD.format("helpers.ANSWER")
    folder(tmp_path, features=features, helpers="ANSWER = ")
    with pytest.raises(SpecError, match=r"helpers\.py.* cannot be imported: SyntaxError"):
        answer(tmp_path)
    assert answer(folder(tmp_path, helpers="ANSWER = 7")) == 7


def test_a_sibling_works_and_counts_in_run_and_in_plain_dagster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    world = World(tmp_path).plant(deliveries, weeks=2)
    for name in ("ML_ASSETS_HOME", "ML_ASSETS_SOURCES", "ML_ASSETS_PIPELINES"):
        monkeypatch.setenv(name, world.environment[name])
    monkeypatch.setenv("DAGSTER_HOME", "")
    at = world.pipelines / "deliveries"
    (at / "joins.py").write_text((at / "features.py").read_text())
    (at / "features.py").write_text("from joins import build as joined\n\nbuild = joined\n")
    run = ("run", "deliveries", "--through", "feature_set")
    cli(*run)

    def due() -> list[str]:
        return [line for line in cli(*run).out.splitlines() if line.startswith("make")]

    (at / "joins.py").write_text('"""Joins."""  # at last\n' + (at / "joins.py").read_text())
    assert due() == []
    (at / "joins.py").write_text((at / "joins.py").read_text() + "\nAnother = build\n")
    assert due() == [], "what the function does not reach"
    text = (at / "joins.py").read_text()
    (at / "joins.py").write_text(text.replace("tables[", "dict(tables)["))
    assert due() == [
        "make  deliveries/feature_set [2024-01-08]: its code or its part of the spec changed"
    ]

    (at / "joins.py").write_text(text)
    version = code_version_of(pipeline_of(at), "feature_set")
    home = world.settings.home / "dagster"
    done = subprocess.run(
        [sys.executable, "-m", "dagster", "asset", "materialize", "-m", "ml_assets.definitions",
         "--select", "key:deliveries/feature_set", "--partition", "2024-01-08"],
        env={**os.environ, "DAGSTER_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert due() == [], version
