"""A spec that asks for an engine: what is made again, and what is refused before anything runs."""

from pathlib import Path

import pytest

from ml_assets.errors import SpecError
from ml_assets.graph.code_version import code_version_of
from ml_assets.spec.features import TableSpec
from ml_assets.spec.records import StageRecord
from ml_assets.store.pipeline_context import Pipeline
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.opened import pipeline_of
from ml_assets_tests.worlds.world import World

ENGINE = "    engine: {kind: duckdb, memory: 64Mi}\n"
WEEKS = ("2024-02-26", "2024-03-04", "2024-03-11")


def portable(text: str) -> str:
    """The function of the deliveries, as it is written for every engine."""
    changes = {
        "import polars as pl\n": "import narwhals as nw\n",
        "from ml_assets.spec.window": "from ml_assets.assets.feature_set.portable import Frame,"
        " portable\nfrom ml_assets.spec.window",
        "def build(": "@portable\ndef build(",
        "pl.LazyFrame": "Frame",
        "pl.": "nw.",
    }
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path).plant(deliveries)


def ask(world: World, engine: str) -> Pipeline:
    spec = world.pipelines / "deliveries" / "defs.yaml"
    line = "    key: [order]\n    decision_at"
    kept = "".join(one for one in spec.read_text().splitlines(True) if "engine: {" not in one)
    assert line in kept
    spec.write_text(kept.replace(line, f"{engine}{line}"))
    return pipeline_of(spec.parent, settings=world.settings)


def write_portable(world: World) -> None:
    file = world.pipelines / "deliveries" / "features.py"
    file.write_text(portable(file.read_text()))


def records(pipeline: Pipeline, stage: str, weeks: tuple[str | None, ...]) -> list[StageRecord]:
    state = pipeline.now()
    found = [state.record(pipeline.address(stage, None, week)) for week in weeks]
    assert all(found)
    return [one for one in found if one]


def test_only_the_kind_of_an_engine_is_code_and_only_of_the_features(world: World) -> None:
    write_portable(world)
    asked = ["", ENGINE, ENGINE.replace("64Mi", "2Gi")]
    versions = {
        stage: [code_version_of(ask(world, engine), stage) for engine in asked]
        for stage in ("feature_set", "training_set")
    }
    polars, duckdb, more = versions["feature_set"]
    assert polars != duckdb and duckdb == more
    assert len({*versions["training_set"]}) == 1


def test_check_refuses_a_function_of_polars_alone(world: World) -> None:
    ask(world, ENGINE)
    said = world.cli("check", "deliveries", code=1)
    assert "features.engine" in said and "is written for polars only. Rewrite it" in said
    write_portable(world)
    world.cli("check", "deliveries")


def test_check_tries_the_function_on_its_engine(world: World) -> None:
    """Frames of polars can do more than those of an engine: a run would have ended there."""
    write_portable(world)
    file = world.pipelines / "deliveries" / "features.py"
    text = file.read_text()
    beginning = text.index("    return ", text.index("def build("))
    counts = "    assert len(tables['orders']) >= 0\n"
    file.write_text(f"{text[:beginning]}{counts}{text[beginning:]}")
    ask(world, "")
    world.cli("check", "deliveries")
    ask(world, ENGINE)
    said = world.cli("check", "deliveries", code=1)
    assert "features.engine" in said and "tried on tables without rows" in said
    assert "has no len()" in said


def test_the_only_engine_is_named_as_one_and_a_table_has_none(world: World) -> None:
    with pytest.raises(SpecError, match="remedy: use 'duckdb'"):
        ask(world, ENGINE.replace("duckdb", "duck"))
    with pytest.raises(ValueError, match="polars makes it, in memory"):
        TableSpec.model_validate(
            {"function": "f.py:t", "reads": ["orders"], "key": ["a"], "engine": {"kind": "duckdb"}}
        )


@pytest.mark.daemon
def test_another_engine_makes_the_features_again_and_nothing_after_them(world: World) -> None:
    write_portable(world)
    pipeline = ask(world, "")
    world.cli("run", "deliveries", "--through", "training_set")
    before = records(pipeline, "feature_set", WEEKS)
    [trained_on] = records(pipeline, "training_set", (None,))
    pipeline = ask(world, ENGINE)
    world.cli("run", "deliveries", "--through", "training_set")
    after = records(pipeline, "feature_set", WEEKS)
    assert [one.data_version for one in after] == [one.data_version for one in before]
    for then, now in zip(before, after, strict=True):
        assert (then.code_version, then.run) != (now.code_version, now.run)
    assert records(pipeline, "training_set", (None,)) == [trained_on]
