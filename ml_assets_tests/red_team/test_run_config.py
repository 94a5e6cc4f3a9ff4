"""Whoever launches a run says what it does; nothing that he says is read from the environment."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from pydantic import Field, ValidationError

from ml_assets.adapters.executor import executor
from ml_assets.adapters.run_config import RunConfig, environment_fields
from ml_assets.automation.broken_pipeline import ASSET
from ml_assets.definitions import build
from ml_assets.settings import read_settings
from ml_assets_tests.worlds import deliveries, irises

TEAMS = """\
import dagster as dg

{config}

@dg.asset(key=["irises", "review"]{schema})
def review(context: dg.AssetExecutionContext{argument}) -> None:
    context.log.info("read by " + {read}.reader)
"""
LEAKS = TEAMS.format(
    config="class Mine(dg.Config):\n    reader: str\n    rows: int = 3\n",
    schema="",
    argument=", config: Mine",
    read="config",
)
PLAIN = TEAMS.format(
    config="from ml_assets.adapters.run_config import RunConfig\n\n\n"
    "class Mine(RunConfig):\n    reader: str\n    rows: int = 3\n",
    schema=", config_schema=Mine.form()",
    argument="",
    read="Mine.of(context)",
)


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo, irises, and deliveries with a canary: every kind of job there is."""
    rooms = tmp_path / "pipelines"
    irises.plant(rooms, tmp_path / "sources")
    deliveries.plant(rooms, tmp_path / "sources", automation="{landing: {retrain: true}}")
    with (rooms / "deliveries" / "defs.yaml").open("a") as spec:
        spec.write("  release: {to: production, canary: {periods: 1}}\n")
    monkeypatch.setenv("ML_ASSETS_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("ML_ASSETS_SOURCES", str(tmp_path / "sources"))
    monkeypatch.setenv("ML_ASSETS_PIPELINES", f"demo:{rooms}")
    return rooms / "irises"


def taken_from_the_environment(repository: dg.RepositoryDefinition) -> Iterator[str]:
    """Every field of what any job of the repository accepts: ops, resources, execution, loggers."""
    for job in repository.get_all_jobs():
        schema = job.run_config_schema.config_type
        assert {"ops", "resources", "execution", "loggers"} <= set(getattr(schema, "fields", {}))
        yield from environment_fields(schema, job.name)


def test_no_job_of_the_repository_takes_a_value_from_the_environment(room: Path) -> None:
    repository = build(read_settings()).get_repository_def()
    known = {job.name for job in repository.get_all_jobs()}
    parts = {"irises__rollback", "flight_delays__drift", "deliveries__promote", "housekeeping"}
    assert {"__ASSET_JOB", *parts} <= known
    assert list(taken_from_the_environment(repository)) == []
    pods = executor("kubernetes").config_schema.config_type
    assert set(getattr(pods, "fields", {})) == {"max_concurrent"}
    assert list(environment_fields(pods)) == []


def test_the_walk_finds_a_field_that_is_planted(room: Path) -> None:
    class Deep(dg.Config):
        names: list[str]
        more: dict[str, int]

    class Planted(dg.Config):
        to: str | None = None
        epochs: int = 3
        loud: bool = False
        share: float = 0.5
        deep: Deep

    @dg.op
    def planted(config: Planted) -> None: ...

    @dg.job
    def mine() -> None:
        planted()

    defs = dg.Definitions.merge(build(read_settings()), dg.Definitions(jobs=[mine]))
    found = {
        field.removeprefix("mine.ops.planted.config.")
        for field in taken_from_the_environment(defs.get_repository_def())
    }
    assert found == {"to", "epochs", "loud", "deep.names", "deep.more"}


def test_a_teams_own_field_that_reads_the_environment_is_refused_when_it_is_loaded(
    room: Path,
) -> None:
    (room / "assets.py").write_text(LEAKS)
    repository = build(read_settings()).get_repository_def()
    broken = repository.asset_graph.get(dg.AssetKey(["irises", ASSET]))
    assert "review takes config.reader, config.rows from a run" in str(broken.description)
    (room / "assets.py").write_text(PLAIN)
    repository = build(read_settings()).get_repository_def()
    assert dg.AssetKey(["irises", "review"]) in repository.asset_graph.get_all_asset_keys()
    assert list(taken_from_the_environment(repository)) == []


GRAPH = """\
import dagster as dg

{config}

@dg.op{schema}
def read(context: dg.OpExecutionContext{argument}) -> str:
    return "read"


@dg.graph_asset(key=["irises", "review"])
def review() -> str:
    return read()
"""


def test_the_ops_of_a_teams_own_graph_are_held_to_the_same(room: Path) -> None:
    leaks = "class Mine(dg.Config):\n    reader: str\n"
    (room / "assets.py").write_text(
        GRAPH.format(config=leaks, schema="", argument=", config: Mine")
    )
    repository = build(read_settings()).get_repository_def()
    broken = repository.asset_graph.get(dg.AssetKey(["irises", ASSET]))
    assert "read takes config.reader from a run" in str(broken.description)
    plain = GRAPH.format(config="", schema="(config_schema={'rows': int})", argument="")
    (room / "assets.py").write_text(plain)
    repository = build(read_settings()).get_repository_def()
    assert dg.AssetKey(["irises", "review"]) in repository.asset_graph.get_all_asset_keys()


class Words(RunConfig):
    """Each kind of field."""

    author: str = Field(description="Who asks for it.")
    to: str | None = None
    rows: int = 3
    share: float = 0.5
    loud: bool | None = None


def test_what_a_run_says_is_taken_word_for_word() -> None:
    seen: list[Words] = []

    @dg.op(config_schema=Words.form())
    def say(context: dg.OpExecutionContext) -> None:
        seen.append(Words.of(context))

    @dg.job(executor_def=dg.in_process_executor)
    def saying() -> None:
        say()

    def run(said: object) -> None:
        saying.execute_in_process(run_config={"ops": {"say": {"config": said}}})

    run({"author": "{env: HOME}"})
    run({"author": "ann", "to": "abc", "rows": 4, "share": 0.25, "loud": True})
    assert seen == [
        Words(author="{env: HOME}"),
        Words(author="ann", to="abc", rows=4, share=0.25, loud=True),
    ]
    for field in ("author", "to", "rows", "share", "loud"):
        with pytest.raises(dg.DagsterInvalidConfigError):
            run({"author": "ann", field: {"env": "HOME"}})
    assert Words.form()["author"].description == "Who asks for it."
    with pytest.raises(ValidationError):
        Words.model_validate({"author": "ann", "rows": "3"})


def test_a_field_of_another_kind_is_told_when_it_is_declared() -> None:
    class Odd(RunConfig):
        names: list[str]

    with pytest.raises(TypeError, match="not a plain value"):
        Odd.form()
