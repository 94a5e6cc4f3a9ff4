"""A claim to prove: the records of one run, one session or one model, back to the sources."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

from ml_assets.errors import NothingReleased, StorageError, UnknownRun
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import stage_line
from ml_assets.records.record_history import Made, RunHistory
from ml_assets.records.run_record import RunRecord
from ml_assets.spec.gates import Target
from ml_assets.spec.records import Decision, InputVersion
from ml_assets.spec.stages import STAGES
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.snapshots import MAIN, SnapshotStore

SHORTEST = 6
"""Characters that a model, a run or a session is at least named by."""


@dataclass(frozen=True)
class Claim:
    """The recorded values of a model; what was never made is None."""

    said: str
    """What a person calls it."""
    pipeline: str
    training: RunRecord | None = None
    evaluation: RunRecord | None = None
    """None also where the report is from before these were kept."""
    data: tuple[Made, ...] = ()
    """From the raw snapshots on, in the order of the walk."""
    training_set: Made | None = None
    model: Made | None = None
    report: Made | None = None
    decision: Decision | None = None


LATEST = "latest"


@dataclass(frozen=True)
class Named:
    """A thing that a name can mean."""

    kind: str
    name: str
    pipeline: str


@dataclass
class Claims:
    """Finds claims among everything that a store ever held."""

    store: SnapshotStore
    history: RunHistory
    _decisions: dict[str, tuple[Decision, ...]] = field(default_factory=dict)

    def of_release(self, pipeline: str, stage: Target) -> Claim:
        """The model in the stage that a pipeline releases to.

        Raises:
            NothingReleased: there is none.
        """
        line = stage_line(read(self.store, pipeline), stage)
        if line is None:
            raise NothingReleased(
                f"{pipeline} has no model in {stage} to prove. Name a run or a model, or release"
                f" one first: ml-assets run {pipeline}"
            )
        return self._of_model(line.model, pipeline)

    def find(self, wanted: str, pipeline: str | None = None) -> Claim:
        """The run, session or model that a name begins; ``latest`` is the newest run of a model.

        Raises:
            UnknownRun: nothing is called so, or several are.
            StorageError: a record of it is no longer kept.
        """
        if wanted == LATEST:
            return self._latest(pipeline)
        found = sorted(
            {one for one in self._names() if one.name.startswith(wanted)}, key=lambda n: n.name
        )
        found = [one for one in found if pipeline in (None, one.pipeline)]
        exact = [one for one in found if one.name == wanted]
        found = exact or found
        if len(wanted) < SHORTEST or len(found) != 1:
            raise UnknownRun(_unknown(wanted, found, pipeline))
        kind, name, of = found[0].kind, found[0].name, found[0].pipeline
        makers = {"model": self._of_model, "session": self._of_session, "run": self._of_run}
        return makers[kind](name, of)

    def _latest(self, pipeline: str | None) -> Claim:
        """The newest run that trained, judged or decided on a model, its end whatever it was."""
        of_model = ("trained_model", "evaluation_report")
        runs = [
            (made.record.time, made.record.run, made.record.key.split("/")[0])
            for made in self.history.made
            if made.record.key.split("/")[1] in of_model
        ]
        runs += [(one.time, one.run, one.pipeline) for one in self.history.trainings]
        for name in {made.record.key.split("/")[0] for made in self.history.made}:
            runs += [(one.time, one.run, name) for one in self._decisions_of(name)]
        own = [run for run in runs if pipeline in (None, run[2])]
        if not own:
            of = f" of {pipeline}" if pipeline else ""
            raise UnknownRun(f"There is no run{of} of a model yet. Run: ml-assets run PIPELINE")
        _, run, name = max(own)
        return self._of_run(run, name)

    def _names(self) -> Iterator[Named]:
        for made in self.history.made:
            pipeline, stage = made.record.key.split("/")[:2]
            yield Named("run", made.record.run, pipeline)
            if stage == "trained_model":
                yield Named("model", made.record.data_version, pipeline)
        for record in self.history.trainings:
            yield Named("run", record.run, record.pipeline)
            yield Named("session", record.session, record.pipeline)
        for pipeline in {made.record.key.split("/")[0] for made in self.history.made}:
            for decision in self._decisions_of(pipeline):
                yield Named("run", decision.run, pipeline)

    # --- the three kinds of names ---------------------------------------------------------------

    def _of_model(self, model: str, pipeline: str) -> Claim:
        reports = self._reports(pipeline, model)
        return self._judged(
            f"model {model[:12]}", pipeline, model, reports[-1] if reports else None
        )

    def _of_session(self, session: str, pipeline: str) -> Claim:
        record = self._training(lambda r: r.session == session)
        assert record is not None
        model = record.outputs.get("model")
        if model is None:
            return self._trained(f"session {session}", record)
        reports = self._reports(pipeline, model)
        last = reports[-1] if reports else None
        return self._judged(f"session {session}", pipeline, model, last)

    def _of_run(self, run: str, pipeline: str) -> Claim:
        said = f"run {run[:8]}"
        made = [m for m in self.history.made if m.record.run == run]
        reports = [m for m in made if m.record.key == f"{pipeline}/evaluation_report"]
        if reports:
            return self._judged(said, pipeline, _model_of(reports[-1], pipeline), reports[-1])
        training = self._training(lambda r: r.run == run)
        if training is not None:
            return self._trained(said, training)
        decided = [d for d in self._decisions_of(pipeline) if d.run == run]
        if decided:
            of_model = self._reports(pipeline, decided[-1].evidence.model)
            judged = [m for m in of_model if m.record.data_version == decided[-1].evidence.report]
            if judged:
                return self._judged(said, pipeline, decided[-1].evidence.model, judged[-1])
        data, sets = [m for m in made if _is_data(m)], [m for m in made if _is_set(m)]
        if not (data or sets):
            raise UnknownRun(
                f"The run {run} of {pipeline} published nothing to make again: no table, no"
                " training. See what it said: ml-assets ops logs " + run[:8]
            )
        start = sets[-1:] or data
        return Claim(said, pipeline, data=self.lineage(start), training_set=(sets or [None])[-1])

    # --- what belongs together ------------------------------------------------------------------

    def _judged(self, said: str, pipeline: str, model: str, report: Made | None) -> Claim:
        made = self.history.by_node.get((f"{pipeline}/trained_model", None, model))
        record = self._training(lambda r: r.outputs.get("model") == model)
        if not made or record is None:
            raise StorageError(
                f"{pipeline}: nothing is recorded of how the model {model[:12]} was made. It was"
                " collected as old history (ML_ASSETS_RETENTION), or another store has it."
            )
        found = self._trained(said, record, made[-1])
        if report is None:
            return found
        ends = [made for made in (found.training_set,) if made]
        ends += [self.require(one, report.record.time) for one in _rows_of(report)]
        return replace(
            found,
            data=self.lineage(ends),
            evaluation=self._evaluation(report),
            report=report,
            decision=self._decision(pipeline, report),
        )

    def _trained(self, said: str, record: RunRecord, model: Made | None = None) -> Claim:
        version = next(i for i in record.inputs if i.key == f"{record.pipeline}/training_set")
        data = self.require(version, record.time)
        if model is None:
            known = record.outputs.get("model", "")
            model = (self.history.by_node.get((_model_key(record), None, known)) or [None])[-1]
        lineage = self.lineage([data])
        return Claim(said, record.pipeline, record, None, lineage, data, model)

    def _training(self, wanted: Callable[[RunRecord], bool]) -> RunRecord | None:
        """The one written last; one of a training that ended goes before that of its beginning."""
        found = [record for record in self.history.trainings if wanted(record)]
        ended = [record for record in found if "model" in record.outputs]
        return (ended or found or [None])[-1]

    def _evaluation(self, report: Made) -> RunRecord | None:
        version, run = report.record.data_version, report.record.run
        found = [r for r in self.history.evaluations if r.outputs.get("report") == version]
        return next((r for r in reversed(found) if r.run == run), found[-1] if found else None)

    def _reports(self, pipeline: str, model: str) -> list[Made]:
        key = f"{pipeline}/evaluation_report"
        made = [m for m in self.history.made if m.record.key == key]
        return [m for m in made if _model_of(m, pipeline) == model]

    def _decision(self, pipeline: str, report: Made) -> Decision | None:
        """The first that the report led to: later ones may be by another policy.

        By a clock that was put back meanwhile all are older than the report: then the first of all.
        """
        version = report.record.data_version
        led = [d for d in self._decisions_of(pipeline) if d.evidence.report == version]
        since = (d for d in led if d.time >= report.record.time)
        return next(since, next(iter(led), None))

    def _decisions_of(self, pipeline: str) -> tuple[Decision, ...]:
        if pipeline not in self._decisions:
            entries = read(self.store, pipeline, self.store.resolve(MAIN))
            self._decisions[pipeline] = tuple(e.decision for e in entries if e.decision)
        return self._decisions[pipeline]

    def lineage(self, ends: list[Made]) -> tuple[Made, ...]:
        """Everything in the snapshot store that the ends were made from; they too, where data."""
        found: dict[tuple[str, str | None], Made] = {}
        frontier = list(ends)
        while frontier:
            made = frontier.pop()
            place = made.record.key, made.record.partition
            known = found.setdefault(place, made)
            if known.record.data_version != made.record.data_version:
                raise StorageError(
                    f"{address_of(made)} was read in two versions,"
                    f" {known.record.data_version[:12]} and {made.record.data_version[:12]}, by"
                    " what this was made from; a clean home holds one. Prove it in parts: name the"
                    " runs that made the tables."
                )
            for version in made.record.inputs:
                if "/" in version.key and (version.key, version.partition) not in found:
                    frontier.append(self.require(version, made.record.time))
        return tuple(made for made in found.values() if _is_data(made))

    def require(self, version: InputVersion, before: datetime) -> Made:
        """The record of an input.

        Raises:
            StorageError: it is no longer kept.
        """
        made = self.history.find(version, before)
        if made is None:
            raise StorageError(
                f"{version.key} [{version.partition or 'all'}] {version.version[:12]} is no "
                "longer in the snapshot store: what nothing refers to is collected as old "
                "history (ML_ASSETS_RETENTION, `ml-assets ops gc`). It cannot be proved."
            )
        return made


def address_of(made: Made) -> Address:
    return Address.of(made.record.key, made.record.partition)


def _model_key(record: RunRecord) -> str:
    return f"{record.pipeline}/trained_model"


def _model_of(report: Made, pipeline: str) -> str:
    return next(i.version for i in report.record.inputs if i.key == f"{pipeline}/trained_model")


def _rows_of(report: Made) -> list[InputVersion]:
    """The rows that a report rests on beside the training set: of earlier origins."""
    pipeline = report.record.key.split("/")[0]
    return [one for one in report.record.inputs if one.key == f"{pipeline}/feature_set"]


def _is_data(made: Made) -> bool:
    return made.record.key.split("/")[1] in STAGES[: STAGES.index("training_set")]


def _is_set(made: Made) -> bool:
    return made.record.key.split("/")[1] == "training_set"


def in_order(pipeline: Pipeline) -> Callable[[Made], tuple[int, int, str, str]]:
    """The order of the walk: a table comes before those that read it."""
    names = [*pipeline.spec.sources, *pipeline.spec.tables]

    def place(made: Made) -> tuple[int, int, str, str]:
        address = address_of(made)
        number = names.index(address.source) if address.source in names else 0
        return STAGES.index(address.stage), number, address.key, address.partition or ""

    return place


def _unknown(wanted: str, found: list[Named], pipeline: str | None) -> str:
    where = f" of {pipeline}" if pipeline else ""
    what = f"run, session or model{where}"
    if len(wanted) < SHORTEST:
        return f"{wanted!r} is too short: name a {what} by {SHORTEST} characters or more."
    if not found:
        return (
            f"There is no {what} that begins with {wanted!r}. `ml-assets release history PIPELINE`"
            " lists models, `ml-assets status PIPELINE --json` the runs of what is there now."
        )
    listed = ", ".join(f"{one.kind} {one.name} of {one.pipeline}" for one in found[:5])
    return f"{len(found)} begin with {wanted!r}: {listed}. Give more of its name."
