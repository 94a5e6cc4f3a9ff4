"""Measures which batch size, processes and threads train fastest here, by short real trainings."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ml_assets.assets.trained_model.training_job import data_ref
from ml_assets.errors import DoesNotFit, SpecError, StorageError, TrainingFailed
from ml_assets.launch.ephemeral_session import EphemeralSession, ephemeral_launcher
from ml_assets.launch.launcher import MeasureJob
from ml_assets.spec.cluster import cluster_problems
from ml_assets.spec.load import rules_of
from ml_assets.spec.training import Boosted, TrainingSpec
from ml_assets.spec.training_program import MeasureResult, Ref
from ml_assets.store.pipeline_context import Pipeline

STEPS = 8
"""Measured in each cell, by default."""
_SAME_SPEED = 0.97
"""The share of the fastest pace that counts as the same: what measuring again may turn round."""
# what a process that had no memory says or is ended by, in the words of torch, C++ and the launcher
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "OutOfMemoryError", "bad_alloc")


@dataclass(frozen=True)
class Setting:
    """One cell of the sweep."""

    batch: int
    processes: int
    threads: int

    @property
    def cores(self) -> int:
        return self.processes * self.threads


@dataclass(frozen=True)
class Cell:
    """The measured speed and memory of one setting, or why it could not be measured."""

    setting: Setting
    measured: MeasureResult | None
    why_not: str
    """Empty where it was measured."""
    memory_mb: float | None = None
    """What it took, where that is why not."""


@dataclass(frozen=True)
class Sweep:
    """Holds what is measured, and on what.

    Args:
        data: the pipeline's last training set.
    """

    pipeline: Pipeline
    data: Ref
    settings: tuple[Setting, ...]
    steps: int = STEPS

    @property
    def on_cluster(self) -> bool:
        return self.pipeline.settings.launcher == "kubernetes"

    def cells(self) -> Iterator[Cell]:
        """Each setting by itself, one after the other; nothing of them stays on disk."""
        with ephemeral_launcher(self.pipeline.settings, "tune", retries=0, restarts=0) as session:
            for setting in self.settings:
                yield self._cell(session, setting)

    def largest(self, most_mb: float) -> Iterator[Cell]:
        """Batches by the first setting, each closer to the largest that fits, to 5 %.

        Args:
            most_mb: of all processes together; infinite: as much as there is.
        """
        first, parts = self.settings[0], self.pipeline.spec.training.microbatches
        fits: dict[int, float] = {}
        over: dict[int, float | None] = {}
        share: int | None = max(1, first.batch // parts)
        with ephemeral_launcher(self.pipeline.settings, "tune", retries=0, restarts=0) as session:
            while share is not None:
                cell = _held_to(self._cell(session, replace(first, batch=share * parts)), most_mb)
                if cell.measured:
                    fits[share] = cell.measured.memory_total_mb
                else:
                    over[share] = cell.memory_mb
                yield cell
                share = next_share(fits, over, most_mb)

    def _cell(self, session: EphemeralSession, setting: Setting) -> Cell:
        spec = self.pipeline.spec
        asked = {
            **spec.training.model_dump(),
            "batch_size": setting.batch,
            "processes": setting.processes,
            "threads": setting.threads,
        }
        try:
            training = TrainingSpec.model_validate(asked)
        except ValidationError as error:
            return Cell(setting, None, rules_of(error))
        wrong = cluster_problems(spec.cluster, spec.model, training, spec.label.task)
        if self.on_cluster and (misfit := next(wrong, None)):
            return Cell(setting, None, misfit.said)
        data, code = session.reachable(self.data), self.pipeline.network
        job = MeasureJob(spec.name, spec.model, training, data, self.steps, spec.cluster, code)
        try:
            return Cell(setting, session.launcher.measure(job), "")
        except DoesNotFit:  # it was counted before it began
            return Cell(setting, None, "out of memory")
        except TrainingFailed as error:
            return Cell(setting, None, why_not(str(error)))


def open_sweep(
    pipeline: Pipeline,
    batches: Sequence[int],
    processes: Sequence[int],
    threads: Sequence[int],
    steps: int,
) -> Sweep:
    """The sweep over a pipeline's last training set; what is empty has a default.

    Raises:
        SpecError: the model's family has no batches.
        StorageError: there is no training set.
    """
    spec = pipeline.spec
    if isinstance(spec.model, Boosted):
        raise SpecError(
            f"{spec.name}: model.family is {spec.model.family!r}: trees grow on all rows at once,"
            " in one process. There is no batch to tune, only training.threads."
        )
    training = spec.training
    chosen = product(
        sorted({*processes} or _processes(pipeline)),
        sorted({*threads} or {training.threads}),
        sorted({*batches} or _around(training.batch_size, training.microbatches)),
    )
    settings = tuple(Setting(batch, procs, count) for procs, count, batch in chosen)
    return Sweep(pipeline, _last_training_set(pipeline), settings, steps)


def next_share(
    fits: Mapping[int, float], over: Mapping[int, float | None], most_mb: float
) -> int | None:
    """The rows of a microbatch to try next; None: 5 % more than the largest that fits do not.

    Args:
        fits: rows of a microbatch -> the memory that they took.
        over: the same of what is too much; None: it ended before anybody could say.
    """
    low, high = max(fits, default=0), min(over, default=None)
    step = max(1, low // 20)
    if high is not None and high - low <= step:
        return None
    guess = _on_the_line({**over, **fits}, most_mb)
    if high is None:  # a line through noise leads anywhere
        guess = min(4 * low, guess or 4 * low)
    else:
        guess = min((low + high) // 2 if guess is None else guess, high - step)
    return max(guess, low + step)


def _on_the_line(tried: Mapping[int, float | None], most_mb: float) -> int | None:
    """Where the line through the two nearest measurements comes to the limit."""
    known = sorted((abs(mb - most_mb), share, mb) for share, mb in tried.items() if mb is not None)
    if len(known) < 2 or math.isinf(most_mb):
        return None
    (_, one, mb), (_, other, of_other) = known[:2]
    slope = (mb - of_other) / (one - other)
    return int(one + (most_mb - mb) / slope) if slope > 0 else None


def _held_to(cell: Cell, most_mb: float) -> Cell:
    """The cell, which counts as not measured where it took more, or fewer rows than it says."""
    found = cell.measured
    if found is None:
        return cell
    if found.rows_per_second * found.step_time_ms / 1e3 < 0.99 * cell.setting.batch:
        return Cell(cell.setting, None, "more rows than the training split has")
    taken = found.memory_total_mb
    if taken <= most_mb:
        return cell
    return Cell(cell.setting, None, f"{taken:,.0f} MB, more than {most_mb:,.0f}", taken)


def best(cells: Sequence[Cell]) -> Cell | None:
    """The fastest; of those that measuring again may turn round, the one on the fewest cores."""
    whole = [(cell, cell.measured.rows_per_second) for cell in cells if cell.measured]
    if not whole:
        return None
    bar = _SAME_SPEED * max(speed for _, speed in whole)
    as_fast = [cell for cell, speed in whole if speed >= bar]
    return min(as_fast, key=lambda cell: (cell.setting.cores, cell.setting.batch))


def largest_of(cells: Sequence[Cell]) -> Cell | None:
    """The largest batch that fits."""
    return max((one for one in cells if one.measured), key=lambda c: c.setting.batch, default=None)


def why_not(report: str) -> str:
    """A cell's few words, from the report of how its program ended."""
    if any(words.lower() in report.lower() for words in _OUT_OF_MEMORY):
        return "out of memory"
    lines = [line.strip() for line in report.splitlines()]
    said = next((line for line in lines if line.startswith("It said: ")), lines[0])
    return said.removeprefix("It said: ")


def document(sweep: Sweep, cells: Sequence[Cell], chosen: Cell | None) -> dict[str, Any]:
    """The whole sweep, for programs."""
    return {
        "schema": 1,
        "pipeline": sweep.pipeline.name,
        "training_set": sweep.data.digest,
        "steps": sweep.steps,
        "cells": [_row(cell) for cell in cells],
        "best": None if chosen is None else _row(chosen),
    }


def _row(cell: Cell) -> dict[str, Any]:
    one = cell.setting
    row = {"batch": one.batch, "processes": one.processes, "threads": one.threads}
    if cell.measured is None:
        return {**row, "why_not": cell.why_not}
    left_out = {"schema_version", "verb", "session", "attempt", "outcome"}
    return {**row, **cell.measured.model_dump(exclude=left_out)}


def _processes(pipeline: Pipeline) -> set[int]:
    """One, and as many as this machine has cores; on a cluster as many as the spec spreads."""
    training = pipeline.spec.training
    if pipeline.settings.launcher == "kubernetes":
        return {training.processes}
    return {1, min(os.cpu_count() or 1, training.microbatches)}


def _around(batch: int, microbatches: int) -> set[int]:
    """A third of the spec's batch, itself, and thrice: each a multiple of the microbatches."""
    share = batch // microbatches
    return {max(1, share // 3) * microbatches, batch, 3 * batch}


def _last_training_set(pipeline: Pipeline) -> Ref:
    record = pipeline.now().record(pipeline.address("training_set"))
    where = None if record is None else data_ref(pipeline, record)
    if where is None or not (Path(where.uri) / "schema.json").is_file():
        state = "was never made" if record is None else "was collected"
        raise StorageError(
            f"{pipeline.name}: its training set {state}; make it first:"
            f" ml-assets run {pipeline.name} --through training_set"
        )
    return where
