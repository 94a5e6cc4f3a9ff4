"""The usage of a run: its training's time, machines and losses, and the attempts of its sessions.

They lie beside the run's other records, and outlive the folders of its sessions.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from typing import Literal

from ml_assets.launch.session_folder import SessionFolder
from ml_assets.launch.usage import session_usages
from ml_assets.records.experiments import RunFolder, TrainingUse, folders
from ml_assets.spec.base import Frozen, canonical_json
from ml_assets.spec.training_program import TrainResult, World
from ml_assets.spec.training_program.events import Event, Finished
from ml_assets.spec.training_progress import TrainingStory
from ml_assets.spec.usage import AttemptUsage
from ml_assets.store.layout import read_as
from ml_assets.store.objects import LocalObjects
from ml_assets.store.snapshots import MAIN, CommitId, SnapshotStore

_USAGE = re.compile(r"usage/(.+)-a(\d+)\.json")
"""``usage/<session>-a<attempt>.json`` in a run's folder: whoever looks for one need not read it."""


class Whose(Frozen):
    """Says whose an attempt was, and what things cost then."""

    run: str
    """Dagster run id."""
    owner: str
    trigger: str
    """Who asked for the run: ``schedule``, ``sensor``, ``by hand``."""
    prices: dict[str, str]
    """As ``ML_ASSETS_PRICES`` had them; empty: none were known."""


class RunUsage(Frozen):
    """One attempt of a session that a run asked for."""

    schema_version: Literal[1] = 1
    whose: Whose
    usage: AttemptUsage


def usage_files(
    store: SnapshotStore,
    objects: LocalObjects,
    pipeline: str,
    whose: Whose,
    sessions: Sequence[str],
    *,
    outlived: bool,
) -> dict[str, bytes]:
    """Files for a run's folder: the attempts of its sessions that no run has written down yet.

    Args:
        sessions: that the run asked for.
        outlived: their last attempts may go on without the run; who adopts one writes it down.
    """
    commit = store.resolve(MAIN)
    known = {key for folder in folders(store, commit, pipeline) for key in _keys(folder)}
    places = [SessionFolder.of(objects, session) for session in sessions]
    there = [place for place in places if place.root.is_dir()]
    used = [usage for place in there for usage in session_usages(place, outlived=outlived)]
    return {
        f"usage/{usage.session}-a{usage.attempt}.json": canonical_json(
            RunUsage(whose=whose, usage=usage)
        )
        for usage in used
        if (usage.session, usage.attempt) not in known
    }


def run_usages(store: SnapshotStore, commit: CommitId, pipeline: str) -> list[RunUsage]:
    """The usage of all runs of a pipeline, oldest run first.

    Raises:
        StorageError: one cannot be read.
    """
    return [
        read_as(store, commit, f"{folder.path}{name}", RunUsage)
        for folder in reversed(folders(store, commit, pipeline))
        for name in sorted(folder.files)
        if _USAGE.fullmatch(name)
    ]


def _keys(folder: RunFolder) -> set[tuple[str, int]]:
    found = filter(None, map(_USAGE.fullmatch, folder.files))
    return {(name[1], int(name[2])) for name in found}


_ON_A_GPU = "gpu_memory_peak_mb"
"""Told only where the network lies on a GPU."""


def spent(
    events: Sequence[Event],
    session: str,
    world: World,
    since: datetime,
    price: Callable[[int], Decimal | None],
) -> TrainingUse:
    """The cost of a run and how far its session came.

    Args:
        events: of the whole session, in the order of its attempts.
        since: when the run began; older attempts were another run's.
        price: of an hour of a machine with so many GPUs; None: not known.
    """
    story = TrainingStory()
    for event in events:
        story.take(event)
    attempts = [list(told) for _, told in groupby(events, key=lambda event: event.attempt)]
    own = [told for told in attempts if told[0].time >= since]
    on_gpu = any(_ON_A_GPU in told for told in story.metrics.values())
    each = price(world.procs if on_gpu else 0)
    losses = [value for _, value in story.curve("validation_loss")]
    return TrainingUse(
        session=session,
        attempts=len(own),
        seconds=sum(_seconds(told) for told in own),
        world=world,
        gpus=world.nodes * world.procs if on_gpu else 0,
        price_per_hour=None if each is None else float(each),
        step=max(story.metrics, default=0),
        epochs=_last(story, "epoch"),
        train_loss=_last(story, "train_loss"),
        validation_loss=min(losses, default=None),
    )


def _seconds(events: Sequence[Event]) -> float:
    """Seconds of an attempt: from its first event to its last, or its own count if that is more."""
    times = [event.time for event in events]
    said = [
        event.result.seconds
        for event in events
        if isinstance(event, Finished) and isinstance(event.result, TrainResult)
    ]
    return max([(max(times) - min(times)).total_seconds(), *said])


def _last(story: TrainingStory, name: str) -> float | None:
    return next((value for _, value in reversed(story.curve(name))), None)
