"""Days of a pipeline that runs by itself on a cluster: a delivery, its data, a model each day.

Fisher's irises, measured again a little otherwise each day, and boosted trees: the least that a
run through the launcher can cost. In some deliveries the species are mixed up: no model learns
that, and the gates refuse.
"""

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg

from ml_assets_tests.extras.scheduled.daemon import Daemon
from ml_assets_tests.extras.scheduled.faults import BAD_FILE, KILLED, Faults
from ml_assets_tests.test_walk_boosting import NETWORK
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.deliveries import deliver

MODEL = """\
  model: {family: lightgbm, rounds: 12, num_leaves: 5, min_child_samples: 5}
  training: {evaluate_every: 4, patience: 50}
  automation: {landing: {}, refresh: {every: day, at: "HH:MM", timezone: UTC}}
"""
EARLIER = timedelta(hours=4)
"""A delivery comes before the refresh is due, one that is spoilt twice as long before."""


@dataclass(frozen=True)
class Day:
    """What is planned for a day."""

    number: int
    faults: tuple[str, ...] = ()
    refused: bool = False
    """The species of its delivery are mixed up."""
    asleep: bool = False
    """The daemon is not at work when the refresh is due."""


def plant(pipelines: Path, sources: Path, due: datetime) -> None:
    """A pipeline whose refresh is due at that time of each day, in UTC."""
    irises.plant(pipelines, sources)
    spec = irises.SPEC.replace(NETWORK, MODEL.replace("HH:MM", f"{due:%H:%M}"))
    spec = spec.replace("{kind: champion}", "{kind: champion, margin: 10.0}")
    spec = spec.replace("bootstrap_samples: 200", "bootstrap_samples: 20")
    (pipelines / "irises" / "defs.yaml").write_text(spec)


@dataclass
class Season:
    """Lives day after day, and remembers what was planned."""

    sources: Path
    daemon: Daemon
    faults: Faults
    first: datetime
    """When the refresh is due on the first day."""
    doomed: bool = False
    """The worker of the next training is killed."""

    def live(self, day: Day) -> None:
        due = self.first + timedelta(days=day.number)
        if BAD_FILE in day.faults:
            self.daemon.pass_until(due - 2 * EARLIER)
            self._deliver(day, spoilt=True)
            self.daemon.settle()
            self.faults.hits[BAD_FILE] += 1
        self.daemon.pass_until(due - EARLIER)
        self._deliver(day)
        self.daemon.settle()
        if day.asleep:
            return
        self.daemon.pass_until(due + timedelta(seconds=30))
        self.doomed = KILLED in day.faults
        with self.faults.planted(day.faults):
            self.daemon.schedules()

    def _deliver(self, day: Day, *, spoilt: bool = False) -> None:
        irises.write_flowers(self.sources)
        header, *lines = (self.sources / "irises.csv").read_text().splitlines()
        rows = [line.split(",") for line in lines]
        for row in rows:
            row[1] = f"{float(row[1]) + day.number / 1000:.3f}"
        if spoilt:
            for row in rows[:100]:
                row[6] = "daisy"
        if day.refused:
            species = [row[6] for row in rows]
            random.Random(day.number).shuffle(species)
            for row, name in zip(rows, species, strict=True):
                row[6] = name
        text = "\n".join([header, *(",".join(row) for row in rows)]) + "\n"
        deliver(self.sources / "irises.csv", text, self.daemon.now)


def is_training(run: dg.DagsterRun) -> bool:
    return run.job_name == "irises__refresh"
