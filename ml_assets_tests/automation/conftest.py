"""A daemon for tests: evaluates real sensors on a real instance and runs what they ask for."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ml_assets.definitions import build, resources
from ml_assets.settings import read_settings
from ml_assets.store.layout import Address, published_partitions, read_record
from ml_assets.store.open import open_snapshots
from ml_assets.store.pipeline_context import Pipeline
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.opened import pipeline_of
from ml_assets_tests.worlds.world import World as Folders

LANDING = "{landing: {}}"
WEEKS = ["2024-01-01", "2024-01-08", "2024-01-15", "2024-01-22"]
"""The first of the deliveries."""
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def asked_for(definition: dg.SensorDefinition | dg.ScheduleDefinition) -> dict[str, object]:
    """The resources a tick is given by Dagster: those it asks for, and no other is made."""
    asked = definition.required_resource_keys
    return {key: one for key, one in resources().items() if key in asked}


@dataclass
class World:
    """A pipeline in a folder of its own, and a daemon that watches it."""

    root: Path
    instance: dg.DagsterInstance
    cursors: dict[str, str | None] = field(default_factory=dict)
    name: str = "deliveries"

    @property
    def folder(self) -> Path:
        return self.root / "pipelines" / self.name

    @property
    def sources(self) -> Path:
        return self.root / "sources"

    @property
    def defs(self) -> dg.Definitions:
        """Loaded anew at each use, as after a reload of the code location."""
        return build(read_settings())

    @property
    def graph(self) -> Pipeline:
        return pipeline_of(self.folder)

    def tick(self, sensor: str = "landing") -> Any:
        """One evaluation, and a second one where files are too new to be told whole by one look."""
        found = self.evaluate(sensor)
        said = found.skip_message or ""
        return self.evaluate(sensor) if "the next check shows" in said else found

    def evaluate(self, sensor: str = "landing") -> Any:
        """One evaluation, with the cursor of the one before."""
        definition = self.defs.resolve_sensor_def(f"{self.name}__{sensor}")
        with dg.build_sensor_context(
            instance=self.instance,
            cursor=self.cursors.get(sensor),
            resources=asked_for(definition),
        ) as context:  # left, it would end its resources in the midst of a later test
            found = definition.evaluate_tick(context)
        self.cursors[sensor] = found.cursor
        return found

    def asks_for(self, sensor: str = "landing") -> list[dg.RunRequest]:
        """The run requests of one tick; a tick without any must say why."""
        found = self.tick(sensor)
        assert found.run_requests or found.skip_message
        return list(found.run_requests or ())

    def says(self, sensor: str = "landing") -> str:
        """Why one tick asks for nothing."""
        found = self.tick(sensor)
        assert not found.run_requests, found.run_requests
        assert found.skip_message
        return found.skip_message

    def execute(self, request: dg.RunRequest) -> bool:
        """Run a request as the daemon's worker does; False: it failed."""
        assert request.run_key is None or not self.runs({"dagster/run_key": request.run_key})
        keyed = {"dagster/run_key": request.run_key} if request.run_key else {}
        keyed["dagster/sensor_name"] = f"{self.name}__landing"
        assert request.job_name
        job = self.defs.resolve_job_def(request.job_name)
        subset = job.get_subset(
            asset_selection=set(request.asset_selection or ()),
            asset_check_selection=None
            if request.asset_check_keys is None
            else set(request.asset_check_keys),
        )
        done = subset.execute_in_process(
            instance=self.instance,
            tags={**request.tags, **keyed},
            run_config={**QUIET, **request.run_config},
            raise_on_error=False,
        )
        return done.success

    def settle(self, sensor: str = "landing", ticks: int = 12) -> list[str]:
        """Tick and run until nothing is asked for; the jobs that ran, in order."""
        jobs: list[str] = []
        for _ in range(ticks):
            requests = self.asks_for(sensor)
            if not requests:
                return jobs
            for request in requests:
                self.execute(request)
                jobs.append(str(request.job_name).removeprefix(f"{self.name}__"))
        raise AssertionError(f"still asking after {ticks} ticks: {jobs}")

    def runs(self, tags: dict[str, str]) -> list[dg.DagsterRun]:
        return list(self.instance.get_runs(filters=dg.RunsFilter(tags=tags)))

    def published(self, stage: str, source: str | None = None) -> list[str]:
        store = open_snapshots(read_settings().snapshots)
        address = Address(self.name, stage, source)
        return list(published_partitions(store, store.resolve("main"), address))

    def as_of(self) -> str | None:
        store = open_snapshots(read_settings().snapshots)
        record = read_record(store, store.resolve("main"), Address(self.name, "training_set"))
        return record.attributes["as_of"] if record else None


def make_it_quick(spec: Path) -> None:
    """Boosted trees, few draws, and a gate that every model passes."""
    text = spec.read_text()
    trees = (
        "  model: {family: lightgbm, rounds: 20, num_leaves: 7, min_child_samples: 5}\n"
        "  training: {evaluate_every: 10, patience: 5}\n"
        "  evaluation: {bootstrap_samples: 20, slices: [depot], baselines: [{kind: constant}]}\n"
        "  gates:\n    - {kind: bound, name: floor, metric: auc, at_least: 0.01}\n"
    )
    text = text.replace("holdout: 2", "holdout: 4")
    begin, end = text.index("  model:"), text.index("  automation:")
    spec.write_text(text[:begin] + trees + text[end:])


Plant = Callable[[int, str], World]


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plant]:
    """``plant(weeks, automation)`` -> a World."""
    Folders(tmp_path).enter(monkeypatch)
    (tmp_path / "sources").mkdir()
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:

        def build_world(weeks: int, automation: str) -> World:
            deliveries.plant(
                tmp_path / "pipelines", tmp_path / "sources", weeks=weeks, automation=automation
            )
            return World(tmp_path, instance)

        yield build_world
