"""Reads where state lives and which servers are used: ``ML_ASSETS_*`` of every command."""

import base64
import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from ml_assets.errors import SettingsError, did_you_mean
from ml_assets.settings.access import WEBHOOK_SECRET
from ml_assets.settings.addresses import (
    database_place,
    is_lakefs,
    is_s3,
    lakefs_place,
    parts_of,
    s3_address,
    web_address,
    without_secrets,
)
from ml_assets.settings.cluster import read_cluster
from ml_assets.settings.prices import Prices, read_prices

Launcher = Literal["local", "kubernetes"]

SQL_PREFIX = "ML_ASSETS_SQL_"
_SERVERS = (
    *("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"),
    *("LAKEFS_ENDPOINT", "LAKEFS_S3_ENDPOINT"),
)


@dataclass(frozen=True)
class Retention:
    """How long each kind is kept once nothing refers to it:
    ``ML_ASSETS_RETENTION``."""

    grace: timedelta = timedelta(days=1)
    """Nothing younger is ever deleted, whatever the kind: work may be going on with it."""
    history: timedelta = timedelta(days=30)
    """Former states of ``main``: tables, records, the ledger."""
    quarantine: timedelta = timedelta(days=30)
    """Rejected rows, on ``main``."""
    shards: timedelta = timedelta(days=7)
    """Training sets and the rows that champions were scored on again."""
    checkpoints: timedelta = timedelta(days=7)
    """Training states of finished sessions; an interrupted one needs its own to go on."""
    sessions: timedelta = timedelta(days=30)
    """Events, results and logs of training and scoring."""
    models: timedelta = timedelta(days=30)
    reports: timedelta = timedelta(days=30)
    """Pages; the numbers in them are records."""
    run_logs: timedelta = timedelta(days=30)
    """What the steps of a run printed; what Dagster tells of it stays for good."""
    scratch: timedelta = timedelta(days=1)
    """What killed processes left behind."""


@dataclass(frozen=True)
class Signing:
    """The keys whose signatures are trusted for the state: ``ML_ASSETS_SIGNING_KEY``,
    ``ML_ASSETS_TRUSTED_KEYS``, and for which one: ``ML_ASSETS_STORE``."""

    key: str | None = field(repr=False)
    """Base64 of 32 secret bytes; None: nothing is signed."""
    trusted: tuple[str, ...]
    """Public keys, base64, that count besides our own."""
    store: str
    """The name that is signed with each state; empty: none."""


def read_signing() -> Signing:
    """The keys of the snapshot store; they are checked where they are used."""
    env = os.environ
    trusted = re.split(r"[,\s]+", env.get("ML_ASSETS_TRUSTED_KEYS", "").strip())
    key, store = env.get("ML_ASSETS_SIGNING_KEY") or None, env.get("ML_ASSETS_STORE", "")
    if store and not _STORE.fullmatch(store):
        raise SettingsError(
            f"ML_ASSETS_STORE is {store!r}: letters, digits, '.', '_' and '-', 63 at most, are"
            " expected. It names the store that this process reads and writes."
        )
    return Signing(key, tuple(filter(None, trusted)), store)


_STORE = re.compile(r"[A-Za-z0-9._-]{1,63}")


DEMO_PIPELINES = Path(__file__).parent.parent / "pipelines"
SHOWN_AFTER_DEMO = DEMO_PIPELINES / "shown_after_demo"
"""Rooms named as folders of the demo's world: each is shown once its folder was laid out."""
CODE_WORLD, IMAGE_WORLD = Path("code"), Path("images")
"""Below the demo's world: what code_lm reads, and what digits reads."""


@dataclass(frozen=True)
class Settings:
    """The settings: where state lives and which servers are used. Every default is embedded: no
    server runs."""

    home: Path
    sources: Path
    pipelines: tuple[Path, ...]
    """Folders that hold a folder for each pipeline; no name may be there twice."""
    snapshots: str
    """A folder, or ``lakefs://repository[/branch]``."""
    objects: str
    """A folder, or ``s3://bucket/prefix``."""
    checkpoints: str | None
    """A folder or ``s3://bucket/prefix`` that holds those of each session; with ``{session}`` in
    it, the place of each; None: beside it."""
    online: str = field(repr=False)
    """A file or a ``redis://`` URL that features are looked up in. A URL may hold a password."""
    studies: str = field(repr=False)
    """A folder, or the SQLAlchemy URL of a database: what a search remembers of its proposals."""
    launcher: Launcher
    tracking_uri: str
    ui_url: str
    """Where people open the Dagster UI; links lead there, and so for the next two."""
    reports_url: str
    mlflow_url: str
    ui_hosts: tuple[str, ...]
    """Names that the Dagster UI answers to besides this machine's: the host of ``ui_url`` too."""
    prices: Prices
    retention: Retention
    alerts: tuple[str, ...] = field(repr=False)
    """URLs of whom to tell of trouble; they are checked where they are used, and hold secrets."""
    events: tuple[str, ...] = field(repr=False)
    """URLs of the programs that are told when a release moves."""
    webhook_secret: str = field(repr=False)
    """What is sent to webhooks is signed with it; empty: nothing is."""
    sql: Mapping[str, str] = field(repr=False)
    """Connection name -> SQLAlchemy URL. Not in repr: a URL may hold a password."""
    servers: Mapping[str, str]
    """The servers of S3 and lakeFS that the environment names: variable -> address or region."""

    @property
    def dagster_home(self) -> Path:
        return self.home / "dagster"

    @property
    def cache(self) -> Path:
        """Return where objects lie on this machine: all of them, or what was fetched from S3."""
        return self.home / "objects" if is_s3(self.objects) else Path(self.objects)

    @property
    def scratch(self) -> Path:
        """Temporary files, on the same file system as the state, so that renames are atomic."""
        return self.home / "scratch"

    @property
    def seen(self) -> Path:
        """Return what the sensors saw of the sources; it may be deleted at any time."""
        return self.home / "seen.db"

    @property
    def digest(self) -> str:
        """SHA-256 of all places that are read and written; of URLs no user and no password."""
        urls = {"online": self.online, "tracking": self.tracking_uri, "studies": self.studies}
        databases = {name: database_place(url) for name, url in self.sql.items()}
        places = {
            "sources": str(self.sources),
            "pipelines": [str(folder) for folder in self.pipelines],
            "snapshots": self.snapshots,
            "objects": self.objects,
            "checkpoints": self.checkpoints,
            "launcher": self.launcher,
            "urls": {name: without_secrets(url) for name, url in urls.items()} | databases,
            "servers": self.servers,
        }
        return sha256(json.dumps(places, sort_keys=True).encode()).hexdigest()

    def sql_url(self, connection: str) -> str:
        """The URL of a named connection; by default an SQLite file beside the other sources."""
        return self.sql.get(connection, f"sqlite:///{self.sources / connection.lower()}.db")


def state_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return where everything of this machine lies: ``ML_ASSETS_HOME``."""
    env = os.environ if environment is None else environment
    return Path(env.get("ML_ASSETS_HOME") or ".ml_assets").expanduser().resolve()


def read_settings(
    environment: Mapping[str, str] | None = None, *, rooms_to_come: bool = False
) -> Settings:
    """Read ML_ASSETS_* (and MLFLOW_TRACKING_URI) from the environment.

    Args:
        rooms_to_come: a folder of ML_ASSETS_PIPELINES need not be there yet.

    Raises:
        SettingsError: a value cannot be used; the message names the variable and the remedy.
    """
    env = os.environ if environment is None else environment
    launcher = _launcher(env)
    home = state_folder(env)
    if home.exists() and not home.is_dir():
        raise SettingsError(
            f"ML_ASSETS_HOME is {home}, which is a regular file; a folder is expected."
            " Move the file away, or set ML_ASSETS_HOME to a folder."
        )
    return Settings(
        home=home,
        sources=Path(env.get("ML_ASSETS_SOURCES") or home / "demo").expanduser().resolve(),
        pipelines=_folders(env.get("ML_ASSETS_PIPELINES", ""), rooms_to_come, home / "demo"),
        snapshots=_snapshots(env, home / "snapshots"),
        objects=(objects := _objects(env, home / "objects")),
        checkpoints=_checkpoints(env, objects),
        online=_online(env, home / "online.db"),
        studies=_studies(env, home / "studies"),
        launcher=launcher,
        tracking_uri=env.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home / 'mlflow.db'}",
        ui_url=(ui := web_address(env, "ML_ASSETS_UI_URL", "http://127.0.0.1:3000")),
        reports_url=web_address(env, "ML_ASSETS_REPORTS_URL", "http://127.0.0.1:3001"),
        mlflow_url=web_address(env, "ML_ASSETS_MLFLOW_URL", _tracking_url(env)),
        ui_hosts=_hosts(env.get("ML_ASSETS_UI_HOSTS", ""), ui),
        prices=read_prices(env),
        retention=_retention(env.get("ML_ASSETS_RETENTION", "")),
        alerts=tuple(env.get("ML_ASSETS_ALERTS", "").split()),
        events=tuple(env.get("ML_ASSETS_EVENTS", "").split()),
        webhook_secret=env.get(WEBHOOK_SECRET, ""),
        sql={
            k.removeprefix(SQL_PREFIX): v for k, v in env.items() if k.startswith(SQL_PREFIX) and v
        },
        servers={name: without_secrets(env[name]) for name in _SERVERS if env.get(name)},
    )


def environment_apart(settings: Settings, home: Path, trusted: Collection[str]) -> dict[str, str]:
    """The environment of a second state folder that reads the same sources and shares nothing else.

    Where keys count, it is signed there with one that is gone afterwards: what is brought there, or
    made there, is no state of the real store.

    Args:
        trusted: the public keys that count here, our own among them.
    """
    stores = ("SNAPSHOTS", "OBJECTS", "CHECKPOINTS", "ONLINE", "STUDIES")
    shared = [f"ML_ASSETS_{name}" for name in stores]
    apart = {k: v for k, v in os.environ.items() if k not in (*shared, "MLFLOW_TRACKING_URI")}
    if trusted:
        apart["ML_ASSETS_SIGNING_KEY"] = base64.b64encode(os.urandom(32)).decode()
        apart["ML_ASSETS_TRUSTED_KEYS"] = ",".join(sorted(trusted))
    return {
        **apart,
        "ML_ASSETS_HOME": str(home),
        "ML_ASSETS_SOURCES": str(settings.sources),
        "ML_ASSETS_PIPELINES": os.pathsep.join(map(str, settings.pipelines)),
        "DAGSTER_HOME": str(home / "dagster"),
    }


def _folders(value: str, to_come: bool, world: Path) -> tuple[Path, ...]:
    """Folders that hold pipelines; ``demo`` is the package's own, which alone is the default.

    Args:
        world: of the demo.
    """
    laid_out = [part for part in (CODE_WORLD, IMAGE_WORLD) if (world / part).is_dir()]
    demo = (DEMO_PIPELINES, *(SHOWN_AFTER_DEMO / part for part in laid_out))
    folders = tuple(
        folder
        for part in (value or "demo").split(os.pathsep)
        for folder in (demo if part == "demo" else (Path(part).expanduser().resolve(),))
        if part
    )
    for folder in folders:
        if not folder.is_dir() and (folder.exists() or not to_come):
            raise SettingsError(
                f"ML_ASSETS_PIPELINES names {folder}, which is not a folder; expected a folder"
                " that holds one folder per pipeline: create it, or run `ml-assets new NAME`."
            )
    return folders


def _snapshots(env: Mapping[str, str], default: Path) -> str:
    value = env.get("ML_ASSETS_SNAPSHOTS", "")
    if not is_lakefs(value):
        return _local_path(env, "ML_ASSETS_SNAPSHOTS", default)
    repository, branch = lakefs_place(value)
    return f"lakefs://{repository}/{branch}"


def _local_path(env: Mapping[str, str], name: str, default: Path) -> str:
    value = env.get(name)
    if not value:
        return str(default)
    scheme = parts_of(name, value).scheme
    if scheme:
        raise SettingsError(
            f"{name} has the scheme {scheme!r}; this version stores to a local path only."
            " Set it to a folder, or unset it."
        )
    return str(Path(value).expanduser().resolve())


def _online(env: Mapping[str, str], default: Path) -> str:
    value = env.get("ML_ASSETS_ONLINE") or str(default)
    parts = parts_of("ML_ASSETS_ONLINE", value)
    if not parts.scheme:
        return str(Path(value).expanduser().resolve())
    if parts.scheme not in ("redis", "rediss") or not parts.hostname:
        raise SettingsError(
            f"ML_ASSETS_ONLINE has the scheme {parts.scheme!r}; expected a file, or"
            " redis://host:6379/0 (rediss:// with TLS)."
        )
    return value


def _studies(env: Mapping[str, str], default: Path) -> str:
    value = env.get("ML_ASSETS_STUDIES") or str(default)
    return value if "://" in value else str(Path(value).expanduser().resolve())


def _objects(env: Mapping[str, str], default: Path) -> str:
    value = env.get("ML_ASSETS_OBJECTS", "")
    if parts_of("ML_ASSETS_OBJECTS", value).scheme:
        return s3_address("ML_ASSETS_OBJECTS", value, or_else="a folder, or ")
    return _local_path(env, "ML_ASSETS_OBJECTS", default)


def _checkpoints(env: Mapping[str, str], objects: str) -> str | None:
    value = env.get("ML_ASSETS_CHECKPOINTS")
    if not value:
        return f"{objects}/sessions/{{session}}/checkpoints" if is_s3(objects) else None
    if not parts_of("ML_ASSETS_CHECKPOINTS", value).scheme:
        return str(Path(value).expanduser().resolve())
    return s3_address("ML_ASSETS_CHECKPOINTS", value, or_else="a folder, or ")


def _tracking_url(env: Mapping[str, str]) -> str:
    """The tracking server's own pages, without its password; else those of `ml-assets ui`."""
    uri = env.get("MLFLOW_TRACKING_URI", "")
    served = parts_of("MLFLOW_TRACKING_URI", uri).scheme in ("http", "https")
    return without_secrets(uri) if served else "http://127.0.0.1:3002"


def _hosts(value: str, ui_url: str) -> tuple[str, ...]:
    hosts = tuple(filter(None, re.split(r"[,\s]+", value)))
    for host in hosts:
        if not re.fullmatch(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*", host):
            raise SettingsError(
                f"ML_ASSETS_UI_HOSTS names {host!r}; expected names of hosts, without a port and"
                " without *, such as dagster.example.com."
            )
    return (urlsplit(ui_url).hostname or "", *hosts)


def _launcher(env: Mapping[str, str]) -> Launcher:
    value = env.get("ML_ASSETS_LAUNCHER") or "local"
    if value == "local":
        return value
    if value == "kubernetes":
        read_cluster(env)  # what a pod needs is told before anything is begun
        return value
    raise SettingsError(f"ML_ASSETS_LAUNCHER is {value!r}; expected 'local' or 'kubernetes'.")


_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def _retention(value: str) -> Retention:
    known = [kind.name for kind in fields(Retention)]
    found: dict[str, timedelta] = {}
    for part in re.split(r"[,\s]+", value.strip(", \n")) if value.strip() else []:
        kind, _, time = part.partition("=")
        if kind not in known:
            raise SettingsError(
                f"ML_ASSETS_RETENTION names {kind!r}, which is not a known kind."
                f"{did_you_mean(kind, known)} Expected one of {', '.join(known)}."
            )
        if kind in found:
            raise SettingsError(f"ML_ASSETS_RETENTION gives {kind} twice; give it once.")
        amount = re.fullmatch(r"(\d{1,5})([hdw])", time)
        if amount is None:
            raise SettingsError(
                f"ML_ASSETS_RETENTION gives {kind} the time {time!r}; expected a whole number of"
                f" hours, days or weeks, for example {kind}=12h, {kind}=30d or {kind}=4w."
            )
        found[kind] = int(amount[1]) * _UNITS[amount[2]]
    retention = Retention(**found)
    if retention.quarantine > retention.history:
        raise SettingsError(
            f"ML_ASSETS_RETENTION keeps quarantine for {retention.quarantine} but history only "
            f"for {retention.history}: the age of rejected rows is read from history. Lengthen "
            "history, or shorten quarantine."
        )
    return retention
