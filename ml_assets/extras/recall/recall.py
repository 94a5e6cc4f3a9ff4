"""Recalls bad data, and everything that it reached in every pipeline and stage; lifts a recall."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from ml_assets.adapters.declare_asset import observation
from ml_assets.adapters.step import Instance
from ml_assets.errors import (
    EvidenceError,
    StorageError,
    answered,
    counted,
    did_you_mean,
    one_line,
)
from ml_assets.extras.recall.recovery import RecoveryPlan, place, recovery_plans
from ml_assets.records import recall_files
from ml_assets.records.ledger import chain as ledger
from ml_assets.records.ledger.stages import decided_move, stages
from ml_assets.records.load_release import canary_report_behind
from ml_assets.records.recalls import content_of, derived_from, named_content
from ml_assets.records.record_history import Made, Node, RunHistory, node_of, read_history
from ml_assets.spec.base import digest_of
from ml_assets.spec.recalls import Lift, Recall, RecalledStage
from ml_assets.spec.records import InputVersion, LedgerEntry
from ml_assets.spec.stages import CANARY_STAGES
from ml_assets.store.layout import recorded_pipelines
from ml_assets.store.snapshots import MAIN, CommitId, SnapshotStore

_SHORTEST = 6


@dataclass(frozen=True)
class Derivation:
    """One time that an asset was made, with the versions that it was made from."""

    output: Node
    inputs: tuple[Node, ...]


def spread(seeds: Iterable[Node], derivations: Sequence[Derivation]) -> set[Node]:
    """Everything whose content is known only from bad data: the seeds, and what they reached.

    A derivation is bad where any of its inputs is. A node is bad where it is a seed, or every
    derivation of it is bad: the same content that was also made from sound inputs is sound. One
    look at each edge: O(nodes + edges).
    """
    users: defaultdict[Node, list[int]] = defaultdict(list)
    for number, derivation in enumerate(derivations):
        for node in derivation.inputs:
            users[node].append(number)
    sound = Counter(derivation.output for derivation in derivations)
    bad = set(seeds)
    frontier, spoiled = deque(bad), bytearray(len(derivations))
    while frontier:
        for number in users.get(frontier.popleft(), ()):
            if spoiled[number]:
                continue
            spoiled[number] = 1
            output = derivations[number].output
            sound[output] -= 1
            if not sound[output] and output not in bad:
                bad.add(output)
                frontier.append(output)
    return bad


@dataclass(frozen=True)
class Extent:
    """A recall, and what it takes to get back."""

    recall: Recall
    ways: tuple[RecoveryPlan, ...]
    judged_on: tuple[RecalledStage, ...]
    """Sound models that passed their canary on rows that were reached: they stay where they are."""


def extent(
    store: SnapshotStore, snapshot: str, author: str = "nobody", reason: str = "a look"
) -> Extent:
    """Return what a recall would reach; nothing is written.

    Args:
        snapshot: a data version or a commit (the beginning will do), or
            ``pipeline/stage[/source][/partition]@version``.

    Raises:
        EvidenceError: nobody answers for it.
        StorageError: nothing is called so, or several things.
    """
    if nobody := answered("A recall", author, reason):
        raise EvidenceError(nobody)
    history, head = read_history(store), store.resolve(MAIN)
    seeds = _seeds(history, snapshot)
    bad = spread((made.node for made in seeds), derivations(history))
    planted = {made.node for made in seeds}
    recall = Recall(
        id=digest_of([sorted(map(str, planted)), reason, datetime.now(UTC).isoformat()])[:12],
        snapshot=snapshot,
        seeds=tuple(_version(made) for made in seeds),
        reached=tuple(_reached(history, bad - planted)),
        spared=tuple(_spared(history, bad)),
        stages=tuple(_stages(store, head, bad)),
        author=one_line(author),
        reason=one_line(reason),
        time=datetime.now(UTC),
    )
    return Extent(
        recall, tuple(recovery_plans(store, head, bad)), tuple(_judged_on(store, head, bad))
    )


def carry_out(store: SnapshotStore, found: Extent) -> tuple[Recall, Extent]:
    """Quarantine what it reached; safe to repeat: one that holds already is completed, with what it
    has reached since. What it finds is looked for again when it holds: somebody may have published
    meanwhile.

    Returns:
        the recall that holds, and what was found last.

    Raises:
        StorageError: a ledger is broken, or others are always first.
    """
    holding = recall_files.active(store, store.resolve(MAIN))
    again = next((r for r in holding if _contents(r) == _contents(found.recall)), None)
    kept = _grown(again, found.recall) if again else found.recall
    if again is None:  # somebody may recall the same at this moment
        recall_files.write(store, kept, unless=lambda one: _contents(one) == _contents(kept))
    elif kept != again:
        recall_files.write(store, kept)
    if kept != again:
        named = found.recall.snapshot  # the name that was first given may be of several by now
        return carry_out(store, extent(store, named, kept.author, kept.reason))
    recall_files.name_state(store, kept.id)
    _tell_ledgers(store, kept, "recall", kept.author, f"recall {kept.id}: {kept.reason}")
    return kept, found


def _grown(recall: Recall, found: Recall) -> Recall:
    """A recall with all that is found of it now; itself where that is no more."""
    seeds, listed, spared = _nodes(recall.seeds), _nodes(recall.reached), _nodes(recall.spared)
    if (
        _nodes(found.seeds) <= seeds
        and _nodes(found.reached) <= listed
        and _nodes(found.spared) <= spared
    ):
        return recall
    read_again = [v for v in found.seeds if node_of(v) not in seeds]
    new = [v for v in found.reached if node_of(v) not in listed]
    others = [v for v in found.spared if node_of(v) not in spared]
    reached = sorted([*recall.reached, *new], key=lambda version: place(node_of(version)))
    stages = tuple(dict.fromkeys([*recall.stages, *found.stages]))
    more = {
        "seeds": (*recall.seeds, *read_again),
        "reached": tuple(reached),
        "spared": (*recall.spared, *others),
        "stages": stages,
    }
    return recall.model_copy(update=more)


def _contents(recall: Recall) -> set[Node]:
    return {content_of(recall, seed) for seed in recall.seeds}


def _nodes(versions: Iterable[InputVersion]) -> set[Node]:
    return {node_of(version) for version in versions}


def lift(store: SnapshotStore, wanted: str, author: str, reason: str) -> Recall:
    """Let what a recall reached be used again; safe to repeat: one that is lifted is completed.

    Raises:
        EvidenceError: nobody answers for it.
        StorageError: no such recall holds.
    """
    if nobody := answered("Lifting a recall", author, reason):
        raise EvidenceError(nobody)
    head = store.resolve(MAIN)
    before = recall_files.lifted(store, head, wanted)
    if before and not _is_told(store, *before):  # whoever lifted it was killed
        recall, said = before
    else:
        recall = recall_files.find(store, head, wanted)
        author, reason = one_line(author), one_line(reason)
        said = Lift(id=recall.id, author=author, reason=reason, time=datetime.now(UTC))
        recall_files.lift(store, said)
    _tell_ledgers(store, recall, "lift", said.author, _lifted(said))
    recall_files.forget_state(store, recall.id)
    return recall


def _lifted(said: Lift) -> str:
    return f"recall {said.id} lifted: {said.reason}"


def _is_told(store: SnapshotStore, recall: Recall, said: Lift) -> bool:
    """Whether each ledger has the line of a lift for each of its models."""
    for pipeline, models in recall.models().items():
        lines = {(e.model, e.reason) for e in ledger.read(store, pipeline) if e.kind == "lift"}
        if any((model, _lifted(said)) not in lines for model in models):
            return False
    return True


def observe(instance: Instance, recall: Recall, ways: Sequence[RecoveryPlan], text: str) -> None:
    """Show it on the page of every asset that is reached now."""
    for way in ways:
        for key, partition, version in way.again:
            metadata = {
                "recall": recall.id,
                "snapshot": recall.snapshot,
                "reason": recall.reason,
                "author": recall.author,
                "version": version,
            }
            instance.report_runless_asset_event(observation(key, partition, metadata, text))


def derivations(history: RunHistory) -> list[Derivation]:
    """Return what was made from what, ever.

    A model that was registered is made from what another pipeline made it from, if one did.
    """
    makers: defaultdict[str, list[Node]] = defaultdict(list)
    for made in history.made:
        if _is_model(made) and "registered" not in made.record.attributes:
            makers[made.node[2]].append(made.node)
    found: list[Derivation] = []
    for made in history.made:
        inputs = [node_of(i) for i in derived_from(made.record) if "/" in i.key]
        if _is_model(made) and "registered" in made.record.attributes:
            inputs += [node for node in makers[made.node[2]] if node != made.node]
        found.append(Derivation(made.node, tuple(inputs)))
    return found


def _is_model(made: Made) -> bool:
    return made.record.key.endswith("/trained_model")


def _seeds(history: RunHistory, snapshot: str) -> tuple[Made, ...]:
    """The newest record of each thing that is called so."""
    place, at, wanted = snapshot.rpartition("@")
    if len(wanted) < _SHORTEST:
        raise StorageError(
            f"{snapshot!r} names no snapshot: give a data version or a commit by {_SHORTEST}"
            " characters or more, or pipeline/stage/name/partition@version."
            " `ml-assets status PIPELINE --json` lists the versions."
        )
    named = {
        made.node: made
        for made in history.made
        if made.record.data_version.startswith(wanted) and (not at or place in _places(made))
    }
    brought = {} if at else {m.node: m for m in history.made if m.commit.startswith(wanted)}
    versions = {*(node[2] for node in named), *({m.commit for m in brought.values()})}
    if len(versions) != 1:
        what = (
            f"{counted(len(versions), 'version', 'begin')} with it" if versions else "there is none"
        )
        raise StorageError(
            f"{snapshot!r} is not one data version or commit of the snapshot store: {what}."
            f"{' A name needs @VERSION behind it.' if '/' in wanted else ''}"
            " `ml-assets status PIPELINE --json` lists the current versions."
            f"{'' if versions else _nearest(history, place or wanted)}"
        )
    found = named or brought
    same = {named_content(node) for node in found} if at else set[Node]()
    renamed = {made.node: made for made in history.made if named_content(made.node) in same}
    return tuple({**found, **renamed}.values())


def _nearest(history: RunHistory, name: str) -> str:
    """The versions of what is called so, or else what is called nearly so; empty: nothing is."""
    versions: defaultdict[str, list[str]] = defaultdict(list)
    for made in reversed(history.made):
        for one in _places(made):
            versions[one].append(made.record.data_version[:12])
    if name not in versions:
        return did_you_mean(name, versions)
    return f" {name} has, newest first: {', '.join([*dict.fromkeys(versions[name])][:3])}."


def _places(made: Made) -> tuple[str, ...]:
    """How people name an (asset, partition)."""
    key, partition = made.record.key, made.record.partition
    return (key, f"{key}/{partition}") if partition else (key, f"{key}/all")


def _version(made: Made) -> InputVersion:
    key, partition, version = made.node
    return InputVersion(key=key, partition=partition, version=version, commit=made.commit)


def _reached(history: RunHistory, bad: set[Node]) -> Iterator[InputVersion]:
    newest = {made.node: made for made in history.made if made.node in bad}
    for made in sorted(newest.values(), key=lambda made: place(made.node)):
        yield _version(made)


def _spared(history: RunHistory, bad: set[Node]) -> Iterator[InputVersion]:
    """What was made from bad data and is sound, each as it was last made from sound data only."""
    sound: dict[Node, Made] = {}
    spoiled = set[Node]()
    for made in history.made:
        if made.node in bad:
            continue
        if any(node_of(i) in bad for i in derived_from(made.record)):
            spoiled.add(made.node)
        else:
            sound[made.node] = made
    yield from (_version(made) for node, made in sound.items() if node in spoiled)


def _stages(store: SnapshotStore, head: CommitId, bad: set[Node]) -> Iterator[RecalledStage]:
    for pipeline in recorded_pipelines(store, head):
        for stage, model in stages(ledger.read(store, pipeline, head)).items():
            if (f"{pipeline}/trained_model", None, model) in bad:
                yield RecalledStage(pipeline=pipeline, stage=stage, model=model)


def _judged_on(store: SnapshotStore, head: CommitId, bad: set[Node]) -> Iterator[RecalledStage]:
    for pipeline in recorded_pipelines(store, head):
        entries = ledger.read(store, pipeline, head)
        for stage, model in stages(entries).items():
            move = decided_move(entries, model, stage)
            report = canary_report_behind(entries, model, move)
            is_bad = (f"{pipeline}/{CANARY_STAGES[0]}", None, report) in bad
            if is_bad and (f"{pipeline}/trained_model", None, model) not in bad:
                yield RecalledStage(pipeline=pipeline, stage=stage, model=model)


def _tell_ledgers(
    store: SnapshotStore, recall: Recall, kind: Literal["recall", "lift"], author: str, reason: str
) -> None:
    """One line for each model that was reached; those that are there are not written again."""
    for pipeline, models in recall.models().items():
        for model in models:

            def line(
                head: ledger.Head, model: str = model
            ) -> "LedgerEntry | ledger.Declined[None]":
                if any((e.kind, e.model, e.reason) == (kind, model, reason) for e in head.entries):
                    return ledger.Declined(None)
                return LedgerEntry(
                    seq=head.seq,
                    previous=head.previous,
                    kind=kind,
                    model=model,
                    author=author,
                    reason=reason,
                    run="",
                    time=datetime.now(UTC),
                )

            ledger.append(store, pipeline, line)
