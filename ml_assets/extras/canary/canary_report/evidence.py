"""The evidence about a model in canary: its predictions and the champion's on later rows.

The rows are those of the first partitions after its holdout.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ml_assets.assets.evaluation_report.build_report import Holdout, judge
from ml_assets.assets.evaluation_report.evaluator import folder_size
from ml_assets.assets.evaluation_report.scoring import Scorer, Subject
from ml_assets.assets.evaluation_report.seed_spread import known_spread
from ml_assets.assets.released_model.gates.decide import decide, policy_digest
from ml_assets.assets.released_model.made_from import require_rows_made_here
from ml_assets.assets.training_set.shards import NotComparable
from ml_assets.assets.training_set.window import feature_order
from ml_assets.errors import EvidenceError, StorageError
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.inputs import require_record
from ml_assets.graph.publish import input_version
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.origin import Origin, find_origin
from ml_assets.records.ledger.stages import champion, decision_line, override_line
from ml_assets.records.load_release import open_files
from ml_assets.records.recall_files import active
from ml_assets.records.recalls import require_sound, sound_champion
from ml_assets.spec.base import digest_of
from ml_assets.spec.gates import AgainstChampion
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import (
    REPORT_FILE,
    CanaryPeriod,
    Decision,
    EvaluationReport,
    Evidence,
    GateResult,
    InputVersion,
    LedgerEntry,
    Measured,
    StageRecord,
)
from ml_assets.store.layout import Address, published_partitions
from ml_assets.store.pipeline_context import Pipeline, PipelineState
from ml_assets.store.snapshots import MAIN, CommitId

CANARY_REPORT = "canary_report"


@dataclass(frozen=True)
class Waiting:
    """The rows are not there yet."""

    model: str
    partition: str
    """The first one that is missing."""

    @property
    def reason(self) -> str:
        return (
            f"model {self.model[:12]} is in canary and waits for the partition {self.partition} of"
            " feature_set"
        )


@dataclass(frozen=True)
class CanaryRows:
    """Labelled rows that no decision on the model has seen."""

    model: Origin
    partitions: tuple[StageRecord, ...]
    """Records of feature_set, oldest first: always the first ones behind the holdout, so that
    nobody chooses the week that suits."""
    commit: CommitId

    @property
    def inputs(self) -> tuple[InputVersion, ...]:
        model = input_version(self.model.model, self.model.commit)
        return (model, *(input_version(record, self.commit) for record in self.partitions))

    @property
    def digest(self) -> str:
        """The digest of which partitions they are, and of what is in them."""
        return digest_of([[record.partition, record.data_version] for record in self.partitions])

    @property
    def span(self) -> tuple[str, str]:
        return self.partitions[0].partition or "", self.partitions[-1].partition or ""

    def period(self, rows: int) -> CanaryPeriod:
        return CanaryPeriod(first=self.span[0], last=self.span[1], rows=rows)

    def read(self, pipeline: Pipeline) -> pl.DataFrame:
        """The rows with a label; those of a query side by side.

        Raises:
            EvidenceError: no row has one yet.
        """
        features, label = Address(pipeline.name, "feature_set"), pipeline.spec.label
        tables = [
            pipeline.store.scan(self.commit, features.at(r.partition).table)
            for r in self.partitions
        ]
        rows = pl.concat(tables).filter(pl.col(label.column).is_not_null()).collect()
        if rows.is_empty():
            raise EvidenceError(
                f"{pipeline.name}: no row of {' to '.join(self.span)} has a label {label.column!r}:"
                " the outcomes have not arrived yet. The model stays in canary."
            )
        return rows.sort(label.query, maintain_order=True) if label.query else rows


def canary_rows(state: PipelineState, model: str) -> CanaryRows | Waiting:
    """Return what the policy asks a model in canary to be scored on, as of a commit.

    Raises:
        EvidenceError: nobody can tell where its holdout ended.
    """
    canary = state.spec.release.canary
    origin = find_origin(state.store, state.name, model)
    if origin is None or canary == "none":
        raise EvidenceError(
            f"{state.name}: the records of model {model[:12]} are no longer in the snapshot "
            "store, so where its holdout ended is not known. It stays in canary."
        )
    published = published_partitions(state.store, state.commit, Address(state.name, "feature_set"))
    order = feature_order(state.pipeline)
    end = _end_of_holdout(state, origin)
    wanted = [key for key in order if key > end][: canary.periods]
    missing = [key for key in wanted if key not in published]
    if missing or len(wanted) < canary.periods:
        return Waiting(model, missing[0] if missing else f"after {wanted[-1] if wanted else end}")
    return CanaryRows(origin, tuple(published[key] for key in wanted), state.commit)


def _end_of_holdout(state: PipelineState, origin: Origin) -> str:
    """The last partition that the model may know: of its holdout, or of what was there when a model
    behind it came from elsewhere."""
    line = decision_line(read(state.store, state.name, state.commit), origin.model.data_version)
    behind = line.decision.behind if line and line.decision else ()
    as_of = _training_set(state.pipeline, origin).attributes["as_of"]
    return max([as_of, *(one.there_to for one in behind if one.there_to)])


def _training_set(pipeline: Pipeline, origin: Origin) -> StageRecord:
    data = require_record(pipeline.at(origin.commit), pipeline.address("training_set"))
    if data.attributes["digest"] != origin.model.attributes["data"]["digest"]:
        raise EvidenceError(
            f"{pipeline.name}: commit {origin.commit[:12]} holds another training set than that of"
            f" model {origin.model.data_version[:12]}. It stays in canary."
        )
    return data


def require_rows(state: PipelineState) -> CanaryRows:
    """The rows that the model in canary is to be scored on.

    Raises:
        EvidenceError: no model is in canary, or its rows are not there yet, or were read elsewhere
            or made by other code.
        Recalled: some of them are recalled.
    """
    model = champion(read(state.store, state.name, state.commit), "canary")
    if model is None:
        raise EvidenceError(
            f"{state.name} has no model in canary. One comes there when it passes its gates:"
            f" ml-assets run {state.name}"
        )
    rows = canary_rows(state, model)
    if isinstance(rows, Waiting):
        raise EvidenceError(f"{state.name}: {rows.reason}. Until then the model stays in canary.")
    require_rows_to_judge_by(state, rows)
    return rows


def require_rows_to_judge_by(state: PipelineState, rows: CanaryRows) -> None:
    """Hold the rows to the recalls of now, and all behind them to the sources and the code of here.

    Raises:
        Recalled: some of them are recalled.
        EvidenceError: something was read elsewhere, or made by other code or another spec; or too
            few of the rows have a label yet.
        StorageError: nothing says where or by what.
    """
    now = state.store.resolve(MAIN)
    for record in rows.partitions:
        require_sound(state.store, now, record)
    require_rows_made_here(state, [input_version(one, rows.commit) for one in rows.partitions])
    _require_not_refused_by_others(state, rows)
    _require_labels(state, rows)


def _require_not_refused_by_others(state: PipelineState, rows: CanaryRows) -> None:
    """Rows that were changed after a refusal are judged on only where the old ones were recalled:
    else a model would be judged until rows come that suit it."""
    model = rows.model.model.data_version
    entries = read(state.store, state.name, state.commit)
    line = decision_line(entries, model, canary=True)
    if line is None or line.decision is None or line.decision.passed:
        return
    same = line.decision.evidence.data == rows.digest
    if same or override_line(entries, line) or _were_recalled(state, rows, line):
        return
    first, last = rows.span
    span = first if first == last else f"{first} to {last}"
    raise EvidenceError(
        f"{state.name}: model {model[:12]} was refused as canary (ledger line {line.seq}:"
        f" {line.reason}), and the rows of {span} were changed since. A canary is judged once. If"
        f" its rows were wrong, recall them: ml-assets data recall; or answer for the model:"
        f" ml-assets release override {state.name} {model[:12]} --author NAME --reason WHY"
    )


def _were_recalled(state: PipelineState, rows: CanaryRows, line: LedgerEntry) -> bool:
    """Whether a recall, later than a decision, reached the partitions that it was made on."""
    keys = {(record.key, record.partition) for record in rows.partitions}
    later = [one for one in active(state.store, state.store.resolve(MAIN)) if one.time > line.time]
    return any(
        (version.key, version.partition) in keys
        for recall in later
        for version in (*recall.seeds, *recall.reached)
    )


_LABELLED = 0.5
"""Least share of rows with a label, as a part of that of the holdout: first outcomes are no fair
sample. Not more, for while a canary waits, the next model takes its place."""


def _require_labels(state: PipelineState, rows: CanaryRows) -> None:
    data, features = _training_set(state.pipeline, rows.model), Address(state.name, "feature_set")
    first, last = data.attributes["holdout"]
    then = published_partitions(state.store, rows.model.commit, features)
    held = [one for key, one in then.items() if first <= key <= last]
    usual = _share(data.attributes["rows"]["holdout"], held)
    label = pl.col(state.spec.label.column).is_not_null()
    tables = [
        state.store.scan(rows.commit, features.at(one.partition).table) for one in rows.partitions
    ]
    labelled = sum(table.select(label.sum()).collect().item() for table in tables)
    share = _share(labelled, rows.partitions)
    if share < _LABELLED * usual:
        raise EvidenceError(
            f"{state.name}: {share:.0%} of the rows of {' to '.join(rows.span)} have a label"
            f" {state.spec.label.column!r}, and {usual:.0%} of the holdout: too few outcomes have"
            " arrived. The model stays in canary until more have, or another one takes its place."
        )


def _share(labelled: int, partitions: Sequence[StageRecord]) -> float:
    rows = sum(one.rows or 0 for one in partitions)
    return labelled / rows if rows else 0.0


def canary_gate(spec: PipelineSpec) -> AgainstChampion:
    """The champion gate that decides on a canary."""
    canary = spec.release.canary
    named = canary.gate if canary != "none" else ""
    gates = [g for g in spec.gates if isinstance(g, AgainstChampion) and g.name == named]
    return gates[0]  # the spec holds the name to the gates


def decided_again(
    state: PipelineState, decision: Decision, entries: Sequence[LedgerEntry]
) -> tuple[GateResult, ...]:
    """Return what the gate here says of the report that a decision on a canary is about.

    What its traffic said is not asked again: labels have come since.

    Args:
        state: as the decision found it.
        entries: the lines before it.

    Raises:
        StorageError: the report is not there.
    """
    address, to = state.address(CANARY_REPORT), state.spec.release.to
    record = state.record(address)
    if record is None or record.data_version != decision.evidence.report:
        raise StorageError("the canary's report behind the decision is no longer kept")
    report = EvaluationReport.model_validate_json(state.read_bytes(address.file(REPORT_FILE)))
    measured = Measured.model_validate(record.attributes["measured"])
    rival, there = decision.evidence.champion, champion(entries, to)
    recalled = there if there != rival else None
    gates = [canary_gate(state.spec)]
    return decide(gates, report, measured, champion=rival, recalled=recalled)


def compare_on(
    pipeline: Pipeline,
    rows: CanaryRows,
    scorer: Scorer,
    rival: Subject | None,
) -> tuple[EvaluationReport, Measured]:
    """Judge the model in canary on the rows, beside the champion.

    Raises:
        EvidenceError: the features of now lack one that the model reads.
    """
    frame = rows.read(pipeline)
    digest = rows.model.model.data_version
    model = Subject.certified(pipeline, *open_files(pipeline.objects, pipeline.name, digest))
    scored = scorer.score(model, frame)
    if isinstance(scored, NotComparable):
        said = f"{pipeline.name}: the model in canary, {digest[:12]}, cannot be scored"
        raise EvidenceError(f"{said}: {scored.reason}. It stays there.")
    spec = pipeline.spec
    asked = spec.model_copy(
        update={
            "gates": (canary_gate(spec),),
            "evaluation": spec.evaluation.model_copy(
                update={"simple_model": None, "baselines": ()}
            ),
        }
    )
    report = judge(
        asked,
        model=digest,
        data=rows.digest,
        holdout=Holdout.of(spec, frame, rows.span),
        predictions=scored.predictions,
        baselines={},
        champion=scorer.champion(rival, frame) if rival else None,
        size_bytes=folder_size(Path(model.ref.uri)),
        seeds=known_spread(pipeline.at(pipeline.store.resolve("main")))
        if canary_gate(spec).seeds
        else None,
    )
    return report, scored.measured()


def canary_evidence(state: PipelineState, entries: Sequence[LedgerEntry]) -> Evidence:
    """Return what a decision on the model in canary has to be about to count now.

    Raises:
        EvidenceError: no model is in canary, its rows are not there, or the report is of others, or
            other code made it or them.
        Recalled: some of the rows are recalled.
    """
    rows = require_rows(state)
    record = require_record(state, state.address(CANARY_REPORT))
    model = rows.model.model
    about = {(i.key, i.partition, i.version) for i in record.inputs}
    missing = [i for i in rows.inputs if (i.key, i.partition, i.version) not in about]
    if missing:
        said = ", ".join(f"{i.key} {i.partition or ''} {i.version[:12]}" for i in missing)
        raise EvidenceError(
            f"{record.key} is about another model or other rows: {said} is not in it. Materialize"
            f" it and its check: ml-assets release promote {state.name}"
        )
    if record.code_version != code_version_of(state.pipeline, CANARY_REPORT):
        raise EvidenceError(
            f"{record.key} was made by other code or another spec than the present ones. Make it"
            f" again, and its check: ml-assets release promote {state.name}"
        )
    return Evidence(
        model=model.data_version,
        report=record.data_version,
        data=rows.digest,
        code=record.code_version,
        policy=policy_digest(state.spec.gates, state.spec.release),
        champion=sound_champion(
            state.store, state.commit, state.name, entries, state.spec.release.to
        ),
    )
