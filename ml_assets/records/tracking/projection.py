"""Projects the ledger's stages and the recalls into MLflow, and repairs them if they are behind.

A mark in the state folder names the last move and the recalls that MLflow has; a kill between the
ledger and MLflow leaves it behind, and the next command that looks updates MLflow again.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ml_assets.records.ledger.chain import path_of, read
from ml_assets.records.ledger.origin import find_origin
from ml_assets.records.ledger.stages import stages
from ml_assets.records.recall_files import lost_recalls
from ml_assets.records.recalls import recalled
from ml_assets.records.tracking.mlflow import AnotherHome, Logged, Tracking, Unavailable
from ml_assets.settings import Settings
from ml_assets.spec.base import digest_of
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.objects import write_whole
from ml_assets.store.snapshots import MAIN, SnapshotStore

_SHOWN_OTHERWISE = "shown otherwise"
"""The mark where MLflow was seen to show what the ledger does not say."""


def project_stages(store: SnapshotStore, tracking: Tracking, pipeline: str) -> Logged | Unavailable:
    """Make MLflow's aliases what the ledger says, each on a version that points to its model.

    A recalled model has none, and its version is tagged with the recall. They are left where they
    show the ledger of another home: it may be the team's.

    Raises:
        StorageError: the ledger is broken.
    """
    if lost := lost_recalls(store):  # what it shows of a recall stays
        return Unavailable(lost[0])
    entries, mark = read(store, pipeline), _wanted_mark(store, pipeline)
    if not is_behind(store, tracking.home, pipeline) and not mark:
        return Logged()
    for model in stages(entries).values():
        origin = find_origin(store, pipeline, model)
        if origin is None:  # collected: MLflow has its version since it was released
            continue
        attributes = origin.model.attributes
        done = tracking.link_model(
            pipeline,
            model,
            attributes["model"]["uri"],
            attributes["session"],
            attributes["mlflow_run"],
        )
        if isinstance(done, Unavailable):
            return done
    done = tracking.set_stage_aliases(
        pipeline,
        lambda: stages(read(store, pipeline)),
        _identity(store, pipeline),
        lambda: _recalled(store, pipeline),
    )
    if isinstance(done, Logged):
        _write_mark(tracking.home, pipeline, mark)
    return done


def _recalled(store: SnapshotStore, pipeline: str) -> Mapping[str, str]:
    """Model -> its recall's id and reason, as of now: of the ledger's models that are recalled."""
    now = store.resolve(MAIN)
    models = dict.fromkeys(entry.model for entry in read(store, pipeline, now))
    found = ((model, recalled(store, now, pipeline, model)) for model in models)
    return {model: one.told for model, one in found if one}


def behind(done: Logged | Unavailable) -> str:
    """Return what to tell of a projection; empty where MLflow has it all."""
    if isinstance(done, AnotherHome):
        return done.reason
    if isinstance(done, Unavailable):
        return f"MLflow is behind; the next command repairs it: {done.reason}"
    return ""


def _identity(store: SnapshotStore, pipeline: str) -> str:
    """A name that no other ledger has: its first line tells a run, an author and a moment."""
    line = store.read_bytes(store.resolve(MAIN), path_of(pipeline, 1))
    return hashlib.sha256(line).hexdigest()


def shown_otherwise(store: SnapshotStore, tracking: Tracking, pipeline: str) -> str:
    """Return what MLflow shows in a stage that the ledger does not say, and the remedy; empty:
    nothing.

    Where they differ, the next command that looks tells MLflow again.

    Raises:
        StorageError: the ledger is broken.
    """
    entries = read(store, pipeline)
    if not entries:  # no model was judged: MLflow may show another home's
        return ""
    if lost := lost_recalls(store):
        return f"MLflow is not told anything: {lost[0]}"
    bad = _recalled(store, pipeline)
    shown = tracking.shown_stages(pipeline, _identity(store, pipeline))
    if isinstance(shown, AnotherHome):
        return shown.reason
    if isinstance(shown, Unavailable):
        return f"MLflow could not be asked which models it shows: {shown.reason}"
    known = {str(stage): model for stage, model in stages(entries).items() if model not in bad}
    wrong = [
        f"{_model(shown.get(stage))} in {stage}; the ledger has"
        f" {_model(known.get(stage))}{_that_may_be_used(shown.get(stage), bad)} there"
        for stage in sorted({*shown, *known})
        if shown.get(stage) != known.get(stage)
    ]
    if not wrong:
        return ""
    with suppress(OSError):  # the folder may only be read
        _write_mark(tracking.home, pipeline, _SHOWN_OTHERWISE)
    return (
        f"MLflow shows {', '.join(wrong)}. The ledger decides; ml-assets release history {pipeline}"
        " puts MLflow right, and so does the next run"
    )


def _model(digest: str | None) -> str:
    return f"model {digest[:12]}" if digest else "no model"


def _that_may_be_used(shown: str | None, bad: Mapping[str, str]) -> str:
    return f" that may be used ({bad[shown]})" if shown and shown in bad else ""


def is_behind(store: SnapshotStore, home: Path, pipeline: str) -> bool:
    """Return whether MLflow lacks the newest move, or a recall or its lift, by our own record, or
    was seen to show what the ledger does not say."""
    mark = _mark(home, pipeline)
    told = mark.read_text().strip() if mark.is_file() else ""
    return told != _wanted_mark(store, pipeline) and bool(read(store, pipeline))


def _wanted_mark(store: SnapshotStore, pipeline: str) -> str:
    """What the mark is once MLflow has it all; empty: no model was ever moved."""
    newest = _newest_move(read(store, pipeline))
    bad = sorted(_recalled(store, pipeline).items())
    return " ".join([str(newest), *([digest_of(bad)] if bad else [])]) if newest else ""


def _newest_move(entries: Sequence[LedgerEntry]) -> int:
    """The newest line that changed what is in a stage; 0 where none did."""
    return max((e.seq for e in entries if e.kind in ("stage", "abort")), default=0)


def _mark(home: Path, pipeline: str) -> Path:
    return home / "projected_to_mlflow" / pipeline


def _write_mark(home: Path, pipeline: str, text: str) -> None:
    mark = _mark(home, pipeline)
    mark.parent.mkdir(parents=True, exist_ok=True)
    write_whole(mark, text.encode())


def repair_projection(store: SnapshotStore, settings: Settings, pipeline: str) -> str:
    """Tell MLflow of moves and recalls that it was not told of, and say so; empty where it knows
    them all.

    Raises:
        StorageError: the ledger is broken.
    """
    if not is_behind(store, settings.home, pipeline):
        return ""
    done = project_stages(store, Tracking(settings.tracking_uri, settings.home), pipeline)
    if isinstance(done, AnotherHome):
        return done.reason
    if isinstance(done, Unavailable):
        return (
            f"MLflow still shows older stages of {pipeline}; the next command repairs it:"
            f" {done.reason}"
        )
    return (
        f"MLflow received the stages of {pipeline} and what is recalled of it, which it did not"
        " know yet"
    )
