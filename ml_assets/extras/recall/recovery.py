"""The cheapest way back from bad data: what to make again, and the last sound release."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import ORDER, decided_move, moves, put_out_line, stages
from ml_assets.records.recalls import quarantine
from ml_assets.records.record_history import Node
from ml_assets.spec.gates import Target
from ml_assets.spec.records import LedgerEntry
from ml_assets.spec.stages import STAGES
from ml_assets.store.layout import read_records, recorded_pipelines
from ml_assets.store.snapshots import CommitId, SnapshotStore


@dataclass(frozen=True)
class RecoveryPlan:
    """Describes how a pipeline gets back, at the least cost."""

    pipeline: str
    again: tuple[Node, ...]
    """What is there now and has to be made again, in order."""
    stays: int
    """How many (asset, partition)s stay as they are."""
    command: str
    """Makes them again; empty where nothing is to be made."""
    back_to: str | None
    """The model that was released before and that no recall reaches."""
    stranded: bool
    """Whether the released model is reached, and there is none to go back to."""


def recovery_plans(store: SnapshotStore, head: CommitId, bad: set[Node]) -> Iterator[RecoveryPlan]:
    """Return the cheapest way back of each pipeline that bad data reached.

    Raises:
        StorageError: a ledger is broken.
    """
    for pipeline in recorded_pipelines(store, head):
        records = read_records(store, head, pipeline)
        there = {(r.key, r.partition, r.data_version): _step(r.key) for r in records}
        again = remake(bad, there)
        entries = read(store, pipeline, head)
        stage, model = _released(entries)
        reached = (f"{pipeline}/trained_model", None, model) in bad
        if not again and not reached:
            continue
        back_to = _back_to(store, head, pipeline, entries, stage, bad) if reached else None
        yield RecoveryPlan(
            pipeline=pipeline,
            again=tuple(again),
            stays=len(there) - len(again),
            command=_command(pipeline, again),
            back_to=back_to,
            stranded=reached and back_to is None,
        )


def _command(pipeline: str, again: Sequence[Node]) -> str:
    """The least that makes them: where no model is bad, no model is made."""
    if not again:
        return ""
    last = max(again, key=place)[0]
    is_data = _step(last) < STAGES.index("training_set")
    through = f" --through {last.split('/')[1]}" if is_data else ""
    return f"ml-assets run {pipeline}{through}"


def _released(entries: Sequence[LedgerEntry]) -> tuple[Target | None, str]:
    """The last stage that holds a model, and the model; a canary on its way is not released."""
    there = stages(entries)
    for stage in reversed(ORDER):
        model = there.get(stage, "")
        move = decided_move(entries, model, stage)
        if move and (stage != "canary" or move.canary == "none"):
            return stage, model
    return None, ""


def _back_to(
    store: SnapshotStore,
    head: CommitId,
    pipeline: str,
    entries: Sequence[LedgerEntry],
    stage: Target | None,
    bad: set[Node],
) -> str | None:
    """The newest model that a rollback takes: released to the stage before, put out by nobody
    since, and reached by no recall."""
    key, held = f"{pipeline}/trained_model", quarantine(store, head)
    for model in dict.fromkeys(move.model for move in reversed(moves(entries, stage))):
        is_bad = (key, None, model) in bad or held.of(key, None, model)
        if not is_bad and decided_move(entries, model, stage) and not put_out_line(entries, model):
            return model
    return None


def remake(bad: Iterable[Node], head: Mapping[Node, int]) -> list[Node]:
    """The bad nodes that are there now, in the order to make them again.

    Args:
        head: what is there now -> its place in the order of the walk.
    """
    return sorted((node for node in bad if node in head), key=lambda n: (head[n], n[0], n[1] or ""))


def place(node: Node) -> tuple[int, str, str]:
    """Sort nodes in the order of the walk."""
    return _step(node[0]), node[0], node[1] or ""


def _step(key: str) -> int:
    """Where a stage stands in the walk; what is no part of it comes last."""
    stage = key.split("/")[1]
    return STAGES.index(stage) if stage in STAGES else len(STAGES)
