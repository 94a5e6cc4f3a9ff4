"""Predicts rows with the release, through the same feature function and the same program.

In a notebook::

    from ml_assets.assets.released_model.predict import open_release

    open_release("flight_delays").predict(frame)
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import assert_never

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ml_assets.assets.feature_set.new_rows import (
    known_later,
    make_feature_rows,
    meet_contract,
)
from ml_assets.assets.raw_snapshot.schema import Columns, name_problems
from ml_assets.assets.released_model.rows_to_predict import (
    LATER,
    RowsAsSent,
    check_keys,
    check_rows,
    of_frame,
    why_needed,
)
from ml_assets.assets.training_set.shards import write_rows_to_score
from ml_assets.assets.validated_table.quarantine import REASON
from ml_assets.errors import RowsRefused, SpecError, counted, quoted
from ml_assets.launch.ephemeral_session import ephemeral_launcher
from ml_assets.launch.launcher import ScoreJob
from ml_assets.records.ledger.origin import find_origin
from ml_assets.records.load_release import LoadedModel, LoadedRelease, doubts, find_release
from ml_assets.records.recalls import require_sound_model
from ml_assets.settings import Settings, read_settings
from ml_assets.spec.features import SubjectSpec
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.schema_change import noted
from ml_assets.spec.sources import FilesSource
from ml_assets.spec.training_program import ModelManifest, ScoreResult
from ml_assets.spec.training_program.events import Event
from ml_assets.store.kept_code import certified_network
from ml_assets.store.objects import read_verified
from ml_assets.store.pipeline_context import Pipeline, open_pipeline
from ml_assets.store.table_statistics import STATISTICS_FILE, Column, TableStatistics

_ROW = "__row"
_NAMED = 5
"""Columns whose unusual numbers a note describes."""
PREDICTED_AT = "predicted_for"
"""The column that says which moment a prediction is about, where it is not the row's own."""


@dataclass(frozen=True)
class Predictions:
    """Holds what the release says of the rows, and what there is to know about it."""

    frame: pl.DataFrame
    """One row for each row asked for, in their order: the key and the probabilities, which are
    null where the row could not be predicted."""
    notes: tuple[str, ...]


def open_release(pipeline: str, settings: Settings | None = None) -> "Predictor":
    """The release of a pipeline, verified and ready to predict.

    Raises:
        SpecError: there is no such pipeline.
        NothingReleased: no model is in its stage.
        EvidenceError: its decision or certificate does not hold.
        StorageError: the model is not what its digest names.
    """
    opened = open_pipeline(pipeline, settings or read_settings())
    require_rows_model(opened)
    return Predictor(opened, find_release(opened))


def require_rows_model(pipeline: Pipeline) -> None:
    """Hold a pipeline to what can be predicted: rows.

    Raises:
        SpecError: its model continues texts.
    """
    if pipeline.spec.features.tokens:
        raise SpecError(
            f"{pipeline.name} is a language model: nothing here predicts, serves or exports it. Its"
            f" files are read by your own program: ml-assets status {pipeline.name} --json names"
            " them, and its report shows how it continues texts."
        )


@dataclass(frozen=True)
class Predictor:
    """A release and the pipeline that it predicts for."""

    pipeline: Pipeline
    release: LoadedRelease

    def predict(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The key of each row and its probabilities, in the order of the rows.

        A binary label gives ``probability``; a label of several classes ``probability_<class>``
        for each, and the likeliest as ``prediction``; a regression ``prediction`` in the label's
        unit; a ranking ``score``, higher is better within a query. What there is to know comes as
        a warning.

        Args:
            rows: new rows of the subject's source, or whole feature rows.

        Raises:
            RowsRefused: the rows are neither; every mistake is listed.
            Recalled: the model was recalled since it was opened.
            WindowError: the tables that their features look back at are not there.
        """
        predictions = self.predictions(of_frame(rows))
        for note in predictions.notes:
            warnings.warn(note, stacklevel=2)
        return predictions.frame

    def predictions(self, rows: RowsAsSent) -> Predictions:
        """The same for rows that are not typed yet: those of a file."""
        pipeline, subject = self.pipeline, self.pipeline.spec.features.subject
        now = pipeline.store.resolve()
        require_sound_model(pipeline.store, now, pipeline.name, self.release.model.digest)
        with noted() as read:
            if subject is not None and self._are_of(subject, rows):
                found = self._of_source_rows(subject, rows)
            else:
                found = self._of_feature_rows(rows)
        return replace(found, notes=(*doubts(self.release), *read.said, *found.notes))

    @property
    def files(self) -> FilesSource | None:
        """The subject, where it is read from files: a CSV is taken to be written as they are."""
        subject = self.pipeline.spec.features.subject
        source = self.pipeline.spec.sources[subject.source] if subject else None
        return source if isinstance(source, FilesSource) else None

    # --- the two kinds of rows ----------------------------------------------------------------

    def _are_of(self, subject: SubjectSpec, rows: RowsAsSent) -> bool:
        """Rows are taken for what they fit better; told apart by their columns alone."""
        declared, later = self._source_columns(subject)
        as_source = [name for name in rows.names if name not in later]
        as_features = self._without_carried(rows).names
        features = feature_columns(self.release.manifest)
        return len(name_problems(as_source, declared)) <= len(name_problems(as_features, features))

    def _of_source_rows(self, subject: SubjectSpec, rows: RowsAsSent) -> Predictions:
        pipeline, key = self.pipeline, self.pipeline.spec.features.key
        taken_for = f"rows of the source {subject.source!r}"
        declared, later = self._source_columns(subject)
        missing = [name for name in declared if name not in rows.names]
        remedies = why_needed(missing, pipeline.spec, subject)
        frame = check_rows(rows, declared, later, taken_for, remedies)
        frame = frame.select(list(pipeline.spec.sources[subject.source].columns))
        check_keys(rows, frame, key, taken_for)
        sound = meet_contract(pipeline, subject, frame)
        notes = _refusals(rows, frame.with_row_index(_ROW), sound.refused, key)
        notes += sound.notes
        if sound.rows.is_empty():
            notes.append(f"Where a check is about the label, {LATER.format(subject.source)}")
            raise RowsRefused(f"{rows.where}: no row meets its contract.\n" + "\n".join(notes))
        made = make_feature_rows(pipeline.now(), subject, sound.rows)
        left_out = len(sound.rows) - len(made.rows)
        if left_out:
            them = "it" if left_out == 1 else "them"
            notes.append(
                f"{counted(left_out, 'row')}: the feature function returns nothing for {them}"
            )
        if made.rows.is_empty():
            raise RowsRefused(f"{rows.where}: no row can be predicted.\n" + "\n".join(notes))
        scored = made.rows.select(key).hstack(self._score(made.rows))
        asked = frame.select(key)
        if pipeline.spec.label.ahead:  # the moment that the prediction is for
            later = pl.col(pipeline.spec.features.decision_at) + pipeline.spec.label.ahead
            asked = asked.with_columns(later.alias(PREDICTED_AT))
        found = asked.join(scored, on=key, how="left", maintain_order="left")
        unseen = self._unseen(made.rows)
        alone = without_history(made.rows, frame.columns, self.release.manifest)
        return Predictions(found, (*notes, *made.notes, *unseen, *alone))

    def _of_feature_rows(self, rows: RowsAsSent) -> Predictions:
        columns = feature_columns(self.release.manifest)
        carried = self._without_carried(rows)
        given = carried.with_numbers(flag_columns(self.pipeline.spec))
        remedies, subject = self._as_source_rows(rows), self.pipeline.spec.features.subject
        always = subject is not None  # it may be rows of it without their key
        frame = check_rows(given, columns, {}, "feature rows", remedies, always=always)
        kept = rows.as_they_are(self.pipeline.spec.features.key)
        if not kept.width:
            kept = pl.DataFrame({"row": np.arange(1, len(rows) + 1)})
        unseen = self._unseen(frame)
        return Predictions(kept.hstack(self._score(frame)), unseen)

    def _source_columns(self, subject: SubjectSpec) -> tuple[Columns, Columns]:
        """The columns that rows must have, and those that are filled in later."""
        columns = self.pipeline.spec.sources[subject.source].columns
        later = known_later(self.pipeline.spec, subject)
        needed: Columns = {name: dtype for name, dtype in columns.items() if name not in later}
        return needed, {name: dtype for name, dtype in columns.items() if name in later}

    def _as_source_rows(self, rows: RowsAsSent) -> list[str]:
        """How feature rows that are refused could be predicted as rows of a source."""
        spec = self.pipeline.spec
        if spec.features.subject is None:
            return [
                f"{spec.name} takes no rows of a source, because features.subject is not set. Name"
                " there the source whose rows are predicted, as in subject: {source:"
                f" {next(iter(spec.sources))}}}."
            ]
        declared, _ = self._source_columns(spec.features.subject)
        missing = [name for name in declared if name not in rows.names]
        if not missing:
            return []
        return [
            f"As rows of the source {spec.features.subject.source!r} (features.subject) they lack"
            f" {', '.join(map(repr, missing))}:",
            *why_needed(missing, spec, spec.features.subject),
        ]

    def _without_carried(self, rows: RowsAsSent) -> RowsAsSent:
        carried = carried_columns(self.pipeline.spec, self.release.manifest)
        return replace(rows, names=tuple(name for name in rows.names if name not in carried))

    def _unseen(self, features: pl.DataFrame) -> tuple[str, ...]:
        """What there is in the rows that the training set had not."""
        words = unseen_words(features, self.release.manifest)
        origin = find_origin(self.pipeline.store, self.pipeline.name, self.release.model.digest)
        file = self.pipeline.address("training_set").file(STATISTICS_FILE)
        if origin is None or not (then := self.pipeline.at(origin.commit)).exists(file):
            return words
        seen = TableStatistics.model_validate_json(then.read_bytes(file))
        read = [name for name in feature_columns(self.release.manifest) if name in features.columns]
        return (*words, *numbers_outside(features.select(read), seen.columns))

    # --- scoring ------------------------------------------------------------------------------

    def _score(self, features: pl.DataFrame) -> pl.DataFrame:
        """The columns of the predictions."""
        return prediction_columns(
            score(self.pipeline, self.release, features), self.release.manifest
        )


def score(pipeline: Pipeline, release: LoadedModel, features: pl.DataFrame) -> NDArray[np.float64]:
    """Return what a model says of feature rows, by the program that trained and judged it."""
    with ephemeral_launcher(pipeline.settings, "predict") as session:
        shards = session.objects.folder("shards", pipeline.name)
        data = write_rows_to_score(features, release.manifest, shards)
        model = session.reachable(release.model)
        spec = pipeline.spec
        job = ScoreJob(
            pipeline.name,
            model,
            data,
            "holdout",
            spec.training.threads,
            spec.cluster,
            certified_network(pipeline, release.manifest),
            spot=spec.training.spot is not None,
        )
        return _read(session.launcher.score(job, _ignore))


def without_history(
    features: pl.DataFrame, given: Sequence[str], manifest: ModelManifest
) -> tuple[str, ...]:
    """A sentence for the rows of which every number that the function makes is missing.

    Args:
        given: the columns that came in; other features are made from the published tables.
    """
    made = [one.name for one in manifest.preprocessing.numeric if one.name not in given]
    if not made:
        return ()
    missing = features.select(pl.all_horizontal(pl.col(made).is_null()).sum()).item()
    if not missing:
        return ()
    return (
        f"{counted(missing, 'row')} without any history: "
        f"{', '.join(made[:3])}{' and the others' if len(made) > 3 else ''} are missing, so it is "
        "predicted without them",
    )


def unseen_words(features: pl.DataFrame, manifest: ModelManifest) -> tuple[str, ...]:
    """A sentence for each categorical feature with values that the training rows did not have."""
    found: list[str] = []
    for column in manifest.preprocessing.categorical:
        words = features[column.name].cast(pl.String).drop_nulls()
        new = words.filter(~words.is_in(list(column.vocabulary)))
        if len(new):
            them = "it is" if len(new) == 1 else "they are"
            found.append(
                f"{counted(len(new), 'row')} with a {column.name} that no training row had,"
                f" {quoted(new[0])} for one: {them} predicted as if it were missing"
            )
    return tuple(found)


def numbers_outside(features: pl.DataFrame, seen: Sequence[Column]) -> tuple[str, ...]:
    """A sentence for the numbers beyond the least and the greatest of the training set's."""
    found: list[str] = []
    for column in seen:
        dtype = features.schema.get(column.name)
        if column.numbers is None or dtype is None or not dtype.is_numeric():
            continue
        low, high, values = column.numbers.low, column.numbers.high, features[column.name]
        beyond = values.filter((values < low) | (values > high))
        if len(beyond):
            example = f"{beyond[0]:g}, where {low:g} to {high:g} were seen"
            found.append(f"{column.name} of {counted(len(beyond), 'row')} ({example})")
    more = f", and {counted(len(found) - _NAMED, 'more column')}" if len(found) > _NAMED else ""
    told = "outside the range of the training set, so the model has learned nothing about them"
    return (f"{told}: {', '.join(found[:_NAMED])}{more}",) if found else ()


def feature_columns(manifest: ModelManifest) -> Columns:
    """Return what a model reads of a row."""
    preprocessing = manifest.preprocessing
    numeric: Columns = {column.name: "float64" for column in preprocessing.numeric}
    return {**numeric, **{column.name: "string" for column in preprocessing.categorical}}


def prediction_columns(predictions: NDArray[np.float64], manifest: ModelManifest) -> pl.DataFrame:
    """Predictions [rows, outputs] as a frame; see ``named_predictions``."""
    return pl.DataFrame(named_predictions(predictions, manifest))


def carried_columns(spec: PipelineSpec, manifest: ModelManifest) -> frozenset[str]:
    """The columns of the feature set that a model does not read: rows may have them."""
    features, label = spec.features, spec.label
    carried = {*features.key, features.decision_at, label.column}
    carried |= {name for name in (label.query, label.of) if name}
    return frozenset(carried - feature_columns(manifest).keys())


def flag_columns(spec: PipelineSpec) -> frozenset[str]:
    """The numeric features that a source declares as true or false: rows may say so, too."""
    declared = (one for source in spec.sources.values() for one in source.columns.items())
    flags = {name for name, dtype in declared if dtype == "boolean"}
    return frozenset(flags.intersection(spec.features.numeric))


def named_predictions(
    predictions: NDArray[np.float64], manifest: ModelManifest
) -> dict[str, NDArray[np.float64] | list[str]]:
    """Predictions [rows, outputs] as columns by name, by what the task predicts."""
    match manifest.task:
        case "binary":
            return {"probability": predictions[:, 0]}
        case "multiclass":
            likeliest = [manifest.classes[place] for place in predictions.argmax(axis=1)]
            shares = {
                f"probability_{name}": predictions[:, n] for n, name in enumerate(manifest.classes)
            }
            return {"prediction": likeliest, **shares}
        case "regression":
            return {"prediction": predictions[:, 0]}
        case "language_model":
            return {"nats": predictions[:, 0]}
        case "ranking":
            return {"score": predictions[:, 0]}
        case _:
            assert_never(manifest.task)


def _read(result: ScoreResult) -> NDArray[np.float64]:
    return np.load(BytesIO(read_verified(result.predictions)), allow_pickle=False)


def _refusals(
    rows: RowsAsSent, numbered: pl.DataFrame, refused: pl.DataFrame, key: tuple[str, ...]
) -> list[str]:
    """A note for each row that its contract keeps back."""
    found = numbered.join(refused.select(*key, REASON), on=key, how="inner")
    return [
        f"{rows.at(row)} is not predicted because its contract refuses it: {why}"
        for row, why in found.select(_ROW, REASON).sort(_ROW).iter_rows()
    ]


def _ignore(_event: Event) -> None:
    """A prediction has no log of its own: what fails is raised."""
