"""Rolls back: chooses the model, verifies its files, tries it, switches, updates MLflow.

The switch is one line of the ledger, after everything that can refuse. Until it is written, the
model in the stage stays. It waits for no run and no lock, because a training may take the night.
``abort`` is no rollback: it takes out a model that is on its way to its last stage, for good.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import polars as pl

from ml_assets.assets.released_model.made_from import records_behind, require_own_sources
from ml_assets.assets.released_model.predict import score
from ml_assets.assets.released_model.promote import Refused
from ml_assets.assets.released_model.tags import append_move, unnamed_releases
from ml_assets.errors import (
    EvidenceError,
    MlAssetsError,
    NothingReleased,
    Recalled,
    StorageError,
    answered,
    counted,
    one_line,
)
from ml_assets.records.ledger.chain import Appended, Declined, Head, append, read
from ml_assets.records.ledger.origin import Origin, find_origin
from ml_assets.records.ledger.stages import (
    champion,
    decided_move,
    find_model,
    moves,
    on_its_way,
    put_out_line,
    stage_line,
)
from ml_assets.records.load_release import LoadedModel, load_model
from ml_assets.records.recalls import require_sound_model
from ml_assets.records.tracking.mlflow import Tracking
from ml_assets.records.tracking.projection import behind, project_stages
from ml_assets.spec.gates import ReleaseSpec
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.layout import Address, read_record, recent_records
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.snapshots import MAIN, SnapshotStore

ROWS = 16
"""Rows of the newest features: the model has to give a number for each."""
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Way:
    """The two models of a rollback: in the stage, and to come back; equal where it is back."""

    away: str
    back: str


@dataclass(frozen=True)
class RolledBack:
    """The model is in the stage again, by this line."""

    entry: LedgerEntry


@dataclass(frozen=True)
class AlreadyBack:
    """The model was in the stage already, by this line."""

    entry: LedgerEntry


def way_back(
    entries: Sequence[LedgerEntry], release: ReleaseSpec, to: str | None = None
) -> Way | Refused:
    """Return which model a rollback brings back.

    Args:
        to: the beginning of its digest; None: the newest one that was in the stage before, and
            that nobody rolled back from since.

    Raises:
        UnknownModel: the ledger tells of no such model.
    """
    away = champion(entries, release.to)
    if away is None:
        return Refused((f"No model is in {release.to}: there is nothing to roll back from.",))
    if to is not None:
        back = find_model(entries, to)
        why = (
            f"Model {back[:12]} was never released to {release.to}: there is nothing to go back to."
            " A model that passes its gates is released by a run, which checks more."
        )
        return Way(away, back) if decided_move(entries, back, release.to) else Refused((why,))
    back = next(models_before(entries, release), None)
    if back is not None:
        return Way(away, back)
    return Refused(
        (
            f"No model was in {release.to} before {away[:12]}, or somebody rolled back from each of"
            " them. Name one with --to; ml-assets release history shows them.",
        )
    )


def models_before(entries: Sequence[LedgerEntry], release: ReleaseSpec) -> Iterator[str]:
    """The models that were in the stage before the one that is there, newest first; not those that
    somebody put out since."""
    away = champion(entries, release.to)
    for model in dict.fromkeys(e.model for e in reversed(moves(entries, release.to))):
        if model != away and put_out_line(entries, model) is None:
            yield model


def append_rollback(
    store: SnapshotStore,
    pipeline: str,
    way: Way,
    release: ReleaseSpec,
    author: str,
    reason: str,
    run: str = "",
) -> RolledBack | AlreadyBack | Refused:
    """Append the line of a rollback, if the model to replace is still the one in the stage.

    Args:
        author: who answers for it.
        run: the Dagster run id; empty for a command.

    Raises:
        StorageError: the ledger is broken.
    """

    def make(head: Head) -> LedgerEntry | Declined[AlreadyBack | Refused]:
        there = stage_line(head.entries, release.to)
        if there is not None and there.model == way.back:
            return Declined(AlreadyBack(there))
        if there is None or there.model != way.away:
            return Declined(_overtaken(there, way, release))
        found = way_back(head.entries, release, way.back)
        if isinstance(found, Refused):
            return Declined(found)
        try:
            require_sound_model(store, store.resolve(MAIN), pipeline, way.back)
        except Recalled as error:  # it came while the model was tried out
            return Declined(Refused((str(error),)))
        return LedgerEntry(
            seq=head.seq,
            previous=head.previous,
            kind="stage",
            model=way.back,
            stage=release.to,
            replaced=way.away,
            because="rollback",
            author=one_line(author),
            reason=one_line(reason),
            run=run,
            time=datetime.now(UTC),
        )

    outcome = append_move(store, pipeline, make)
    return RolledBack(outcome.entry) if isinstance(outcome, Appended) else outcome.outcome


def _overtaken(there: LedgerEntry | None, way: Way, release: ReleaseSpec) -> Refused:
    now = f"{there.model[:12]}, by line {there.seq} of {there.author}" if there else "none"
    return Refused(
        (
            f"Another move came first: this rollback was to replace {way.away[:12]} in "
            f"{release.to}, where {now} is now. Nothing was moved; check, and ask again.",
        )
    )


@dataclass(frozen=True)
class RollbackRequest:
    """Holds what somebody wants back, and why."""

    author: str
    reason: str
    to: str | None = None
    """The beginning of a model's digest; None: the one that was in the stage before."""


@dataclass(frozen=True)
class Returned:
    """The model is in its stage again."""

    entry: LedgerEntry
    origin: Origin
    was_there: bool
    """An earlier rollback had moved it already."""


def return_to(
    pipeline: Pipeline, tracking: Tracking, asked: RollbackRequest, tell: Tell, run: str = ""
) -> Returned:
    """Roll a pipeline back.

    Raises:
        NothingReleased: there is nothing to go back to.
        EvidenceError: the named model was never released, or somebody else was first.
        UnknownModel: the ledger tells of no such model.
        StorageError: its files are lost or damaged; nothing was moved.
        MlAssetsError: it cannot predict the features of now; nothing was moved.
    """
    if unanswered := answered("A rollback", asked.author, asked.reason):
        raise EvidenceError(unanswered)
    way = _unfinished(pipeline) if asked.to is None else None
    way = way or _way(pipeline, asked.to)
    origin = find_origin(pipeline.store, pipeline.name, way.back)
    if origin is None:
        raise StorageError(
            f"The records of model {way.back[:12]} are no longer in the snapshot store, so what "
            "it was made from is unknown. Name another model: ml-assets release history "
            f"{pipeline.name}"
        )
    stage = pipeline.spec.release.to
    tell(f"model {way.back[:12]} is to be in {stage}: its certificate and files are checked first")
    model = _verified(pipeline, way.back, origin)
    tell(f"verified: model {way.back[:12]} is what its certificate and its digest name")
    if since := model.refused_since:
        tell(f"refused since: ledger line {since.seq}, {since.reason}. You are responsible for it.")
    if recall := model.judged_on:
        tell(
            f"judged on bad rows: those by which it passed its canary are recalled (recall"
            f" {recall.id}: {recall.reason}). You are responsible for it."
        )
    with ThreadPoolExecutor(1) as beside:  # MLflow takes seconds to load
        beside.submit(tracking.ensure_database)
        tell("it is now tried on rows of the newest features")
        tell(f"tried: it predicts {try_out(pipeline, model)} rows of the newest features")
    moved = append_rollback(
        pipeline.store, pipeline.name, way, pipeline.spec.release, asked.author, asked.reason, run
    )
    if isinstance(moved, Refused):
        raise EvidenceError("\n".join(moved.reasons))
    tell(f"ledger line {moved.entry.seq} says so: MLflow and Dagster are now told")
    for said in unnamed_releases(pipeline.store, pipeline.name):
        tell(said)
    if said := behind(project_stages(pipeline.store, tracking, pipeline.name)):
        tell(said)
    return Returned(moved.entry, origin, isinstance(moved, AlreadyBack))


def _verified(pipeline: Pipeline, back: str, origin: Origin) -> LoadedModel:
    """Its decision of then, its certificate, its files and its sources; code may have moved on."""
    move = decided_move(read(pipeline.store, pipeline.name), back, pipeline.spec.release.to)
    model = load_model(pipeline.store, pipeline.objects, pipeline.name, back, moved=move)
    behind = records_behind(pipeline.store, origin.commit, pipeline.name)
    require_own_sources(behind, pipeline.spec.sources, pipeline.settings)
    return model


def try_out(pipeline: Pipeline, model: LoadedModel) -> int:
    """Predict a few rows of the newest features; how many.

    Raises:
        RowsRefused: the features of now lack one that the model reads.
        StorageError: there are no features, or the model's answers are no numbers.
    """
    rows = _newest_features(pipeline)
    predictions = score(pipeline, model, rows)
    if len(predictions) != len(rows) or not np.isfinite(predictions).all():
        raise StorageError(
            f"Model {model.model.digest[:12]} gives no number for some of "
            f"{counted(len(rows), 'row')} of the newest features: it cannot be served, and "
            "nothing was moved."
        )
    return len(rows)


def _way(pipeline: Pipeline, to: str | None) -> Way:
    way = way_back(read(pipeline.store, pipeline.name), pipeline.spec.release, to)
    if isinstance(way, Refused):
        said = "\n".join(way.reasons)
        raise NothingReleased(said) if to is None else EvidenceError(said)
    return way


def _unfinished(pipeline: Pipeline) -> Way | None:
    """A rollback killed after its ledger line: it is finished, instead of going one model back."""
    store = pipeline.store
    there = stage_line(read(store, pipeline.name), pipeline.spec.release.to)
    shown_by = Address(pipeline.name, pipeline.spec.release.shown_by)
    record = read_record(store, store.resolve(), shown_by)
    if there is None or there.because is None or there.replaced is None or record is None:
        return None
    finished = record.attributes.get("seq") == there.seq
    return None if finished else Way(there.replaced, there.model)


def _newest_features(pipeline: Pipeline) -> pl.DataFrame:
    store, address = pipeline.store, Address(pipeline.name, "feature_set")
    commit = store.resolve()
    for record in reversed(recent_records(store, commit, address)):
        rows = store.scan(commit, address.at(record.partition).table).head(ROWS).collect()
        if len(rows):
            return rows
    raise MlAssetsError(
        f"{address.key} has no rows to try the model on: ml-assets run {pipeline.name}"
    )


def abort(pipeline: Pipeline, model: str, author: str, reason: str) -> LedgerEntry | None:
    """Take a model out of staging or canary; None where it is in neither, or where its pipeline
    releases to that stage: there another one takes its place.

    Raises:
        StorageError: the ledger is broken.
        MlAssetsError: the line cannot be written, as where no key signs it.
    """

    def make(head: Head) -> LedgerEntry | Declined[None]:
        stays = champion(head.entries, pipeline.spec.release.to) == model
        if stays or model not in on_its_way(head.entries):
            return Declined(None)
        return LedgerEntry(
            seq=head.seq,
            previous=head.previous,
            kind="abort",
            model=model,
            author=author,
            reason=one_line(reason),
            run="",
            time=datetime.now(UTC),
        )

    outcome = append(pipeline.store, pipeline.name, make)
    return outcome.entry if isinstance(outcome, Appended) else None
