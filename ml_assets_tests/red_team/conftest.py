"""A world with a release and a refused model, and an attacker who writes everywhere but has no key.

It is made once; every attack begins from a copy that lies in the same place. The environment holds
canaries: secrets that must be found nowhere afterwards.
"""

import base64
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest

from ml_assets.definitions import build
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.embedded.store import EmbeddedStore
from ml_assets.store.layout import Address, read_record
from ml_assets.store.objects import LocalObjects
from ml_assets.store.open import open_snapshots
from ml_assets.store.pipeline_context import Pipeline, open_pipeline
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

NAME = "irises"
CANARY = "CANARY7c1f"
"""In every secret: whoever greps for it finds a leak."""
SIGNING_KEY = base64.b64encode(f"{CANARY}-thirty-two-byte-key!".ljust(32, "!").encode()).decode()
SECRETS = {
    "ML_ASSETS_SIGNING_KEY": SIGNING_KEY,
    "ML_ASSETS_SQL_WAREHOUSE": f"sqlite:////nowhere/at/all.db?password={CANARY}-sql",
    "ML_ASSETS_ALERTS": f"https://ann:{CANARY}-hook@127.0.0.1:9/{CANARY}-path",
    "AWS_ACCESS_KEY_ID": f"{CANARY}-aws-id",
    "AWS_SECRET_ACCESS_KEY": f"{CANARY}-aws",
    "MLFLOW_TRACKING_USERNAME": f"{CANARY}-mlflow-user",
    "MLFLOW_TRACKING_PASSWORD": f"{CANARY}-mlflow",
    "MLFLOW_TRACKING_TOKEN": f"{CANARY}-mlflow-token",
    "SLACK_BOT_TOKEN": f"{CANARY}-slack",
}
NASTY = "<script>alert('petal')</script>"
"""A feature's name: text on every page, a tag on none."""
SPEC = irises.SPEC.replace(
    "numeric: [sepal_length, sepal_width, petal_length, petal_width]",
    f"numeric: [sepal_length, sepal_width, petal_length, {json.dumps(NASTY)}]",
)
CANNOT_PASS = (
    "    - {kind: bound, name: too_good, metric: log_loss, at_most: 0.0000001}\n"
    "    - {kind: champion}"
)


@dataclass(frozen=True)
class Scene:
    """The world of one attack, opened in this process."""

    world: World
    outputs: tuple[str, ...]
    """What the commands that made it printed."""

    @property
    def state(self) -> Path:
        return self.world.settings.home

    @property
    def snapshots(self) -> Path:
        return Path(self.world.settings.snapshots)

    @property
    def objects(self) -> LocalObjects:
        return LocalObjects(Path(self.world.settings.objects))

    @property
    def store(self) -> EmbeddedStore:
        """Opened anew: nothing that an attack changed is remembered."""
        store = open_snapshots(self.world.settings.snapshots)
        assert isinstance(store, EmbeddedStore)
        return store

    @property
    def place(self) -> Pipeline:
        return open_pipeline(NAME, self.world.settings)

    @property
    def ledger(self) -> tuple[LedgerEntry, ...]:
        return read(self.store, NAME)

    @property
    def in_production(self) -> str | None:
        return champion(self.ledger)

    @property
    def candidate(self) -> str:
        """The model that was trained last."""
        store = self.store
        record = read_record(store, store.resolve(), Address(NAME, "trained_model"))
        assert record is not None
        return record.data_version

    def key(self, *parts: str) -> dg.AssetKey:
        return dg.AssetKey([NAME, *parts])

    def definitions(self) -> dg.Definitions:
        return build(self.world.settings, only=NAME)

    def materialize(
        self,
        *stages: str,
        checks: bool = False,
        begun: dg.Definitions | None = None,
        **run: object,
    ) -> str:
        """Execute some assets; without their checks unless asked: why it failed, or nothing.

        Args:
            begun: what a run loaded that began before.
        """
        selected = {self.key(stage) for stage in stages}
        job = (begun or self.definitions()).resolve_implicit_global_asset_job_def()
        subset = job.get_subset(
            asset_selection=selected, asset_check_selection=None if checks else set()
        )
        with self.world.instance() as instance:
            done = subset.execute_in_process(instance=instance, raise_on_error=False, **run)
        return "\n".join(
            str(event.step_failure_data.error) for event in done.all_events if event.is_step_failure
        )


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Three states, one after the other: a model that passed, its release, another one refused."""
    world = World(tmp_path_factory.mktemp("red-team"), SECRETS).plant(irises)
    features = world.pipelines / NAME / "features.py"
    renamed = f'tables["flowers"].rename({{"petal_width": {NASTY!r}}})'
    features.write_text(irises.FEATURES.replace('tables["flowers"]', renamed))
    (world.pipelines / NAME / "defs.yaml").write_text(SPEC)
    said = [world.cli("run", NAME, "--through", "evaluation_report")]
    keep(world, "passed")
    said.append(world.cli("run", NAME))
    keep(world, "released")
    spec = world.pipelines / NAME / "defs.yaml"
    assert "    - {kind: champion}" in SPEC and NASTY in SPEC
    stricter = SPEC.replace("    - {kind: champion}", CANNOT_PASS)
    spec.write_text(stricter.replace("epochs: 30", "epochs: 29"))
    (world.root / "refused.yaml").write_text(spec.read_text())
    said.append(world.cli("run", NAME, code=3))
    keep(world, "refused")
    return Scene(world, tuple(said))


def keep(world: World, name: str) -> None:
    shutil.copytree(world.root / "state", world.root / name)


def scene_of(made: Scene, name: str, spec: str, monkeypatch: pytest.MonkeyPatch) -> Scene:
    root = made.world.root
    if (root / "state").exists():  # in one step: a server of the last attack may still write there
        (root / "state").rename(root / f"before-{uuid4().hex}")
    shutil.copytree(root / name, root / "state")
    (made.world.pipelines / NAME / "defs.yaml").write_text(spec)
    for variable, value in made.world.environment.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("DAGSTER_HOME", str(made.world.settings.dagster_home))
    return made


@pytest.fixture
def passed(made: Scene, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A model passed its gates and is not released yet."""
    scene = scene_of(made, "passed", SPEC, monkeypatch)
    assert scene.in_production is None
    yield scene


@pytest.fixture
def released(made: Scene, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """The model is in production."""
    yield scene_of(made, "released", SPEC, monkeypatch)


@pytest.fixture
def refused(made: Scene, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A second model failed a gate; the first stays in production, whatever the attack does."""
    spec = (made.world.root / "refused.yaml").read_text()
    scene = scene_of(made, "refused", spec, monkeypatch)
    before = scene.in_production
    assert before is not None and before != scene.candidate
    yield scene
