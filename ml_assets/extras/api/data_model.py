"""The data model in SQL: views over what the API lists, in a database of its own.

It is a projection of the snapshot store and the ledger, and may be deleted at any time. Views can
only be read; ``renew`` refreshes their data.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from ml_assets.errors import MlAssetsError, SettingsError
from ml_assets.extras.api import lists
from ml_assets.settings import Settings
from ml_assets.settings.addresses import password_forms, without_secrets
from ml_assets.spec.base import digest_of
from ml_assets.spec.load import pipeline_folders
from ml_assets.store.pipeline_context import Pipeline, open_pipeline

if TYPE_CHECKING:
    import sqlalchemy as sa

Row = dict[str, Any]
_ALL = 1 << 31
EVERY = 30.0
"""Seconds between two looks at what is new."""


def _columns(text: str) -> dict[str, str]:
    """Name -> kind: text, where none is said."""
    pairs = (one.partition(":") for one in text.split())
    return {name: kind or "text" for name, _, kind in pairs}


VIEWS: Mapping[str, Mapping[str, str]] = {
    "pipelines": _columns("pipeline_id:key description owner sources:json model_type releases_to"),
    "experiments": _columns("experiment_id:key pipeline_id runs:integer last_run:time url"),
    "runs": _columns(
        "run_id:key experiment_id:key began:time status failed_stage failed_reason started_by"
        " experiment hypothesis goal model_version metrics:json url"
    ),
    "model_versions": _columns(
        "name:key version:key stage registered:time passed:boolean reason ledger_line:integer"
        " override_author recall"
    ),
}
"""View -> its columns, each with its kind."""
_OF_PIPELINE = {
    "pipelines": "pipeline_id",
    "experiments": "pipeline_id",
    "runs": "experiment_id",
    "model_versions": "name",
}
"""View -> the column that names the pipeline: an experiment has its name."""


@dataclass(frozen=True)
class Renewed:
    """Holds what the views hold now."""

    rows: dict[str, int]
    """View -> how many."""
    unread: tuple[str, ...]
    """A sentence for each pipeline that could not be read."""


@dataclass
class DataModel:
    """The views in one database.

    Args:
        url: as SQLAlchemy takes it: ``sqlite:///...`` or ``postgresql+psycopg://...``.
    """

    settings: Settings
    url: str = field(repr=False)

    @classmethod
    def of(cls, settings: Settings, url: str | None) -> "DataModel":
        """The views at an address; None: in a file of the state folder."""
        return cls(settings, url or f"sqlite:///{settings.home / 'data_model.db'}")

    def renew(self) -> "Renewed":
        """Bring the views up to what is true now.

        A pipeline of which nothing changed costs a look at its newest commit. One that cannot be
        read stays as it was, and is told.

        Raises:
            SettingsError: the database does not answer.
        """
        import sqlalchemy as sa
        from sqlalchemy.exc import SQLAlchemyError

        try:
            engine = sa.create_engine(self.url, poolclass=sa.NullPool)
            with engine.begin() as connection:
                tables = _made(connection)
                states = tables["state"]
                known = connection.execute(sa.select(states.c.pipeline_id, states.c.state))
                seen = {name: state for name, state in known}
                names = sorted(pipeline_folders(self.settings))
                for name in seen.keys() - {*names}:
                    _replace(connection, tables, name, {}, None)
                unread: list[str] = []
                for name in names:
                    try:
                        self._renew(connection, tables, name, seen.get(name))
                    except MlAssetsError as error:
                        unread.append(f"{name} stays as it was: {error}")
                counted = {
                    view: connection.scalar(sa.select(sa.func.count()).select_from(tables[view]))
                    or 0
                    for view in VIEWS
                }
                return Renewed(counted, tuple(unread))
        except (SQLAlchemyError, ModuleNotFoundError) as error:
            raise SettingsError(
                f"The data model cannot be written to {self.shown}: {self._plain(error)}. Set"
                " ML_ASSETS_DATA_MODEL to the URL of a database that answers, or unset it for a"
                " file of the state folder."
            ) from error

    @property
    def shown(self) -> str:
        """The address without user, password and options; what is no address is not shown."""
        known = "://" in self.url
        return without_secrets(self.url) if known else "an address that is not one of a database"

    def _plain(self, error: BaseException) -> str:
        """The driver's words, without the statement, its values and what is secret."""
        words = str(getattr(error, "orig", None) or error).splitlines()[0]
        try:
            parts = urlsplit(self.url)
        except ValueError:
            return "it is no URL"
        options = [value for _, value in parse_qsl(parts.query) if not value.isdigit()]
        forms = [form for one in options for form in (one, unquote(one), quote(one)) if form]
        for secret in (*password_forms(self.url), *forms):
            words = words.replace(secret, "***")
        return words

    def keep_fresh(self, ended: threading.Event, tell: Callable[[str], None]) -> None:
        """Renew again and again, until it is ended; what fails is told once and tried again."""
        told = ""
        while not ended.wait(EVERY):
            try:
                trouble = "\n".join(self.renew().unread)
            except Exception as error:  # whatever a store says while it is away
                trouble = str(error)
            if trouble not in ("", told):
                tell(trouble)
            told = trouble

    def _renew(
        self,
        connection: "sa.Connection",
        tables: "Mapping[str, sa.Table]",
        name: str,
        seen: str | None,
    ) -> None:
        pipeline = open_pipeline(name, self.settings)
        state = _state(pipeline)
        if state != seen:
            _replace(connection, tables, name, _rows(pipeline), state)


def _state(pipeline: Pipeline) -> str:
    """Changes with whatever the views show of a pipeline."""
    store, name = pipeline.store, pipeline.name
    commit = store.resolve()
    folders = (f"ledger/{name}/", f"experiments/{name}/", "recalls/")
    files = [[e.path, e.digest] for folder in folders for e in store.list(commit, folder)]
    return digest_of([files, pipeline.spec.model_dump(mode="json")])


def _rows(pipeline: Pipeline) -> dict[str, list[Row]]:
    return {
        "pipelines": [lists.describe(pipeline.spec)],
        "experiments": [lists.experiment(pipeline)],
        "runs": [_run(one) for one in lists.runs(pipeline, None, _ALL).items],
        "model_versions": [_version(one) for one in _versions(pipeline)],
    }


def _versions(pipeline: Pipeline) -> Sequence[Row]:
    return lists.model_versions(pipeline, None, _ALL).items


def _run(shown: Row) -> Row:
    failed = shown["failed"] or {}
    more = {"failed_stage": failed.get("stage"), "failed_reason": failed.get("reason")}
    return {**shown, **more, "started_by": shown["trigger"]}


def _version(shown: Row) -> Row:
    return {**shown, "override_author": (shown["override"] or {}).get("author")}


def _made(connection: "sa.Connection") -> "dict[str, sa.Table]":
    """The tables behind the views, and the views; made where they are missing."""
    import sqlalchemy as sa

    kinds: Mapping[str, Any] = {
        "key": sa.String(200),
        "text": sa.Text(),
        "integer": sa.Integer(),
        "boolean": sa.Boolean(),
        "time": sa.DateTime(timezone=True),
        "json": sa.JSON(),
    }
    metadata = sa.MetaData()
    tables = {
        view: sa.Table(
            f"ml_assets_{view}",
            metadata,
            *(
                sa.Column(name, kinds[kind], primary_key=kind == "key", nullable=kind != "key")
                for name, kind in columns.items()
            ),
        )
        for view, columns in VIEWS.items()
    }
    tables["state"] = sa.Table(
        "ml_assets_state",
        metadata,
        sa.Column("pipeline_id", sa.String(200), primary_key=True),
        sa.Column("state", sa.String(64)),
    )
    metadata.create_all(connection)
    there = sa.inspect(connection).get_view_names()
    # Postgres lets simple views be written through; one with an offset is read
    read = " OFFSET 0" if connection.dialect.name == "postgresql" else ""
    for view in VIEWS.keys() - {*there}:
        connection.execute(sa.text(f"CREATE VIEW {view} AS SELECT * FROM ml_assets_{view}{read}"))
    return tables


def _replace(
    connection: "sa.Connection",
    tables: "Mapping[str, sa.Table]",
    name: str,
    rows: Mapping[str, Sequence[Row]],
    state: str | None,
) -> None:
    """All rows of a pipeline by others, in the same transaction."""
    for view, column in _OF_PIPELINE.items():
        table = tables[view]
        connection.execute(table.delete().where(table.c[column] == name))
        found = [_stored(view, row) for row in rows.get(view, ())]
        if found:
            connection.execute(table.insert(), found)
    states = tables["state"]
    connection.execute(states.delete().where(states.c.pipeline_id == name))
    if state is not None:
        connection.execute(states.insert(), {"pipeline_id": name, "state": state})


def _stored(view: str, row: Row) -> Row:
    kinds = VIEWS[view]
    return {
        name: datetime.fromisoformat(row[name])
        if kind == "time" and row[name] is not None
        else row[name]
        for name, kind in kinds.items()
    }
