"""Adds each step of the model's stages to the record of its run, whether it ends well or not.

A run's words (experiment, hypothesis, goal) come with its tags, or with the configuration of its
training: the command line and the UI set them in the same way.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import dagster as dg

from ml_assets.errors import MlAssetsError, StorageError
from ml_assets.launch.events import session_events
from ml_assets.launch.session_name import SESSIONS_TAG
from ml_assets.records.data_steps import data_step_files
from ml_assets.records.experiments import (
    DATA,
    FAILED,
    MODEL,
    RECORD,
    REPORT,
    SPENT,
    STOPPED,
    STUDY,
    Begun,
    FailedStep,
    Words,
    add,
    begin,
)
from ml_assets.records.recent_runs import rows
from ml_assets.records.run_usage import Whose, spent, usage_files
from ml_assets.records.tracking.links import Links
from ml_assets.reports.run_rows import SHORT, short_table
from ml_assets.settings import price_class
from ml_assets.spec.base import canonical_json
from ml_assets.spec.records import REPORT_FILE
from ml_assets.spec.stages import SEARCH_STAGE
from ml_assets.spec.training_program import training_world
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline

_TAG = "ml_assets/{}"
_MOST = 2000
"""Characters of a reason."""


def word_tags(words: Words) -> dict[str, str]:
    """A run's words as its tags in Dagster."""
    return {_TAG.format(name): text for name, text in words.said().items()}


def words_of(run: dg.DagsterRun, pipeline: str) -> Words:
    """The words that a run came with: its tags, or the configuration of its training."""
    tags = {name: run.tags.get(_TAG.format(name)) for name in Words.model_fields}
    configured = _configured(run, pipeline)
    return Words.of({name: tag or configured.get(name) for name, tag in tags.items()})


class StepJournal:
    """Writes down one step of one run."""

    def __init__(
        self, pipeline: Pipeline, stage: str, context: Any, given: Mapping[str, Any]
    ) -> None:
        run: dg.DagsterRun = context.run
        epochs = _configured(run, pipeline.name).get("epochs")
        opened: Pipeline = given["stores"].open(pipeline)
        self.pipeline = opened.with_epochs(epochs if isinstance(epochs, int) else None)
        self.stage, self.context, self.run = stage, context, run
        self.since = datetime.now(UTC)

    @contextmanager
    def written(self) -> Iterator[None]:
        self._begin()
        try:
            yield
        except GeneratorExit:
            raise
        except BaseException as error:
            self._fail(error)
            raise
        pipeline = self.pipeline
        steps = data_step_files(pipeline.store, pipeline.name, pipeline.settings.prices)
        self._add({**self._made(), **self._usage(), **steps})
        if self.stage == "evaluation_report":
            self.context.add_output_metadata(_last_runs(self.pipeline))

    def _begin(self) -> None:
        words = words_of(self.run, self.pipeline.name)
        if words.said():
            self.context.instance.add_run_tags(self.run.run_id, word_tags(words))
        begun = Begun(
            pipeline=self.pipeline.name,
            run=self.run.run_id,
            trigger=_trigger(self.run),
            words=words,
            config=self.pipeline.spec.model_dump(mode="json"),
            time=self.since,
        )
        begin(self.pipeline.store, begun)

    def _fail(self, error: BaseException) -> None:
        reason = _reason(error)[:_MOST]
        failed = FailedStep(stage=self.stage, reason=reason, time=datetime.now(UTC))
        files = {FAILED: canonical_json(failed)}
        try:
            usage = self._usage(outlived=self.pipeline.on_cluster)
            self._add({**files, **self._begun_from(), **usage})
        except StorageError as away:  # the step's own error is the one to tell
            self.context.log.warning(f"the failure was not recorded: {away}")

    def _begun_from(self) -> dict[str, bytes]:
        """What a training that failed had read, and what it took."""
        if self.stage != "trained_model":
            return {}
        now, record = self.pipeline.now(), self.pipeline.address("training_set").record
        data = {DATA: now.read_bytes(record)} if now.exists(record) else {}
        return {**data, **self._cost()}

    def _made(self) -> dict[str, bytes]:
        """What the step published: the very bytes, so that they cost no room."""
        name = self.pipeline.name
        training_set = Address(name, "training_set")
        model, report = Address(name, "trained_model"), Address(name, "evaluation_report")
        study = Address(name, SEARCH_STAGE)
        judged = {
            DATA: training_set.record,
            MODEL: model.record,
            RECORD: model.file(RECORD),
            REPORT: report.file(REPORT_FILE),
        }
        paths: dict[str, dict[str, str]] = {
            "training_set": {DATA: training_set.record},
            SEARCH_STAGE: {DATA: training_set.record, STUDY: study.record},
            "trained_model": {
                DATA: training_set.record,
                MODEL: model.record,
                RECORD: model.file(RECORD),
            },
            "evaluation_report": judged,
            "released_model": judged,  # of a run that did no more, as after an override
        }
        now, found = self.pipeline.now(), paths.get(self.stage, {})
        if self.stage == "released_model":  # what is released does not fail for what is lost
            found = {name: path for name, path in found.items() if now.exists(path)}
        files = {name: now.read_bytes(path) for name, path in found.items()}
        return {**files, **(self._cost() if self.stage == "trained_model" else {})}

    def _cost(self) -> dict[str, bytes]:
        """The cost of the training session that the run asked for, if it came so far."""
        own = [name for name in self._sessions() if name.startswith(f"{self.pipeline.name}-train-")]
        if not own:
            return {}
        folder = self.pipeline.objects.path("sessions", own[-1])
        events = session_events(folder) if folder.is_dir() else []
        spec, prices = self.pipeline.spec, self.pipeline.settings.prices
        bought = price_class(spec.training.spot is not None)
        price = partial(prices.node_hour, bought)
        world = training_world(spec.model, spec.training)
        return {SPENT: canonical_json(spent(events, own[-1], world, self.since, price))}

    def _usage(self, *, outlived: bool = False) -> dict[str, bytes]:
        """The usage of every session that the run asked for so far.

        Args:
            outlived: what they started may go on after the run.
        """
        pipeline = self.pipeline
        whose = Whose(
            run=self.run.run_id,
            owner=pipeline.spec.owner,
            trigger=_trigger(self.run),
            prices=pipeline.settings.prices.said(),
        )
        sessions = self._sessions()
        store, objects = pipeline.store, pipeline.objects
        return usage_files(store, objects, pipeline.name, whose, sessions, outlived=outlived)

    def _sessions(self) -> list[str]:
        """The names of those that the run asked for so far."""
        now = self.context.instance.get_run_by_id(self.run.run_id) or self.run
        return now.tags.get(SESSIONS_TAG, "").split()

    def _add(self, files: Mapping[str, bytes]) -> None:
        add(self.pipeline.store, self.pipeline.name, self.run.run_id, files)


def _last_runs(pipeline: Pipeline) -> dict[str, Any]:
    """The newest runs in short, and where all of them are side by side."""
    return {
        "last_runs": dg.MetadataValue.md(short_table(rows(pipeline, SHORT)).markdown()),
        "experiments": dg.MetadataValue.url(Links.of(pipeline.settings).experiments(pipeline.name)),
    }


def _configured(run: dg.DagsterRun, pipeline: str) -> Mapping[str, object]:
    """The configuration of a run's training; empty where it has none."""
    found: Any = run.run_config
    for part in ("ops", f"{pipeline}__train", "config"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _trigger(run: dg.DagsterRun) -> str:
    return run.tags.get("trigger", "by hand")


def _reason(error: BaseException) -> str:
    if isinstance(error, MlAssetsError):
        return str(error)
    if isinstance(error, KeyboardInterrupt | dg.DagsterExecutionInterruptedError):
        return STOPPED
    return f"{type(error).__name__}: {error}"
