"""The data model in SQL, on SQLite and on a real Postgres: read-only, true, joined."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from ml_assets.errors import SettingsError
from ml_assets.extras.api.data_model import DataModel
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.servers.postgres import PASSWORD, postgres
from ml_assets_tests.worlds.world import World

PAGE = Path(__file__).parents[3] / "docs" / "api.md"
JOINS = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
"""Those that the docs show."""


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def model(
    request: pytest.FixtureRequest, released: World, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DataModel]:
    if request.param == "sqlite":
        file = tmp_path_factory.mktemp("model") / "data_model.db"
        yield DataModel.of(released.settings, f"sqlite:///{file}")
    else:
        with postgres() as url:
            yield DataModel.of(released.settings, url)


def ask(model: DataModel, query: str) -> list[dict[str, object]]:
    engine = sa.create_engine(model.url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        return [dict(row) for row in connection.execute(sa.text(query)).mappings()]


def test_the_views_say_what_the_ledger_says(model: DataModel, released: World) -> None:
    renewed = model.renew()
    assert model.renew() == renewed
    assert not renewed.unread
    assert PASSWORD not in model.shown and PASSWORD not in repr(model)
    store = open_pipeline("irises", released.settings).store
    entries = read(store, "irises")
    there = ask(model, "SELECT version FROM model_versions WHERE stage = 'production'")
    assert champion(entries) in {one["version"] for one in there}
    known = ask(model, "SELECT version FROM model_versions WHERE name = 'irises'")
    assert {one["version"] for one in known} == {entry.model for entry in entries}


def test_the_joins_of_the_docs(model: DataModel) -> None:
    model.renew()
    assert len(JOINS) == 2
    for join in JOINS:
        found = ask(model, join)
        assert found, join
        assert None not in found[0].values()


def test_a_view_cannot_be_written(model: DataModel) -> None:
    model.renew()
    engine = sa.create_engine(model.url, poolclass=sa.NullPool)
    for view in ("pipelines", "experiments", "runs", "model_versions"):
        with engine.connect() as connection, pytest.raises(sa.exc.DBAPIError):
            connection.execute(sa.text(f"DELETE FROM {view}"))


def test_what_changed_is_there_at_the_next_look(model: DataModel, released: World) -> None:
    model.renew()
    engine = sa.create_engine(model.url, poolclass=sa.NullPool)
    with engine.begin() as connection:  # as if the ledger had a line more
        connection.execute(sa.text("UPDATE ml_assets_state SET state = 'older'"))
        connection.execute(sa.text("DELETE FROM ml_assets_runs"))
    assert not ask(model, "SELECT * FROM runs")
    model.renew()
    assert ask(model, "SELECT * FROM runs")


def test_a_pipeline_that_cannot_be_read_stays_as_it_was_and_is_told(
    model: DataModel, released: World
) -> None:
    before = model.renew()
    spec = released.pipelines / "deliveries" / "defs.yaml"
    good = spec.read_text()
    spec.write_text("type: [\n")
    try:
        renewed = model.renew()
        said = released.streams("ops", "data-model", code=1).stderr
    finally:
        spec.write_text(good)
    assert renewed.rows == before.rows
    [told] = renewed.unread
    assert told.startswith("deliveries stays as it was: ")
    assert "deliveries stays as it was: " in said


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql+psycopg://me:{PASSWORD}@127.0.0.1:1/x",
        f"postgresql+psycopg://me:{PASSWORD}/x@127.0.0.1:1/x",
        f"postgresql+psycopg://127.0.0.1:1/x?user=me&password={PASSWORD}",
        f"no address {PASSWORD}",
        f"me:{PASSWORD}@127.0.0.1/x",
        f"postgresql://[x/db?password={PASSWORD}",
    ],
)
def test_a_database_that_does_not_answer_is_said_without_its_password(
    released: World, url: str
) -> None:
    with pytest.raises(SettingsError, match="ML_ASSETS_DATA_MODEL") as refused:
        DataModel.of(released.settings, url).renew()
    assert PASSWORD not in str(refused.value)


def test_the_command_writes_a_file_of_the_state_folder(released: World) -> None:
    said = released.cli("ops", "data-model")
    assert "data_model.db: " in said and " model_versions" in said
    (released.settings.home / "data_model.db").unlink()
