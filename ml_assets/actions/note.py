"""Records a person's verdict on a run: in its records, and as tags of its MLflow run."""

from datetime import UTC, datetime

from ml_assets.records.experiments import (
    HypothesisVerdict,
    Note,
    RunStory,
    Words,
    add_note,
    plain_words,
    tracking_tags,
)
from ml_assets.records.recent_runs import find
from ml_assets.records.tracking.mlflow import Tracking, Unavailable
from ml_assets.records.tracking.outbox import Outbox, OutboxEntry
from ml_assets.settings import Settings
from ml_assets.store.open import open_objects
from ml_assets.store.pipeline_context import Pipeline


def take_note(
    pipeline: Pipeline,
    wanted: str,
    verdict: HypothesisVerdict | None,
    note: str | None,
    author: str,
) -> tuple[RunStory, Note]:
    """Add a note to a run; what was written before stays.

    Args:
        wanted: the run, or its model: see ``find``.

    Raises:
        UnknownRun: there is no such run.
    """
    story = find(pipeline, wanted)
    written = Note(
        run=story.folder.run,
        model=story.digest,
        verdict=verdict,
        note=plain_words("note", note),
        author=plain_words("author", author) or "unknown",
        time=datetime.now(UTC),
    )
    add_note(pipeline.store, story.folder, written)
    return story, written


def tell_mlflow(settings: Settings, story: RunStory, note: Note) -> str:
    """Copy a note to the MLflow run of its session; why it only waits in the outbox, else empty."""
    tags = tracking_tags(Words(), note)
    session = story.spent.session if story.spent else None
    if story.model is not None:
        session = story.model.attributes["session"]
    if session is None:
        return ""
    tracking = Tracking(settings.tracking_uri, settings.home)
    run = story.model.attributes.get("mlflow_run") if story.model else None
    said = tracking.set_tags(run, tags) if run else Unavailable("its MLflow run is not known yet")
    if not isinstance(said, Unavailable):
        return ""
    outbox = Outbox(settings.home, open_objects(settings.objects, settings.cache))
    status = "FINISHED" if story.model else "FAILED"
    pipeline = story.folder.pipeline
    outbox.add(OutboxEntry(pipeline=pipeline, session=session, status=status, tags=tags, params={}))
    return said.reason
