"""Makes the model of a claim again from equal data: training set, weights, report, decision."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from ml_assets.adapters.declare_asset import asset_key
from ml_assets.adapters.execute import Tell, execute
from ml_assets.adapters.runs import Definitions, Selection
from ml_assets.assets.trained_model.checks import checks_of, sanity_job
from ml_assets.assets.trained_model.initial_weights import DISTILL, INIT_FROM
from ml_assets.assets.trained_model.training_job import data_ref
from ml_assets.assets.training_set.shards import load_schema, read_rows
from ml_assets.automation.planner.selection import gate_keys, leak_keys
from ml_assets.errors import Interrupted, MlAssetsError, RefusedByGate, StorageError
from ml_assets.extras.prove.claim import Claim, address_of
from ml_assets.extras.prove.clean_home import CleanHome
from ml_assets.extras.prove.code import other_devices
from ml_assets.extras.prove.data import differing_rows
from ml_assets.extras.prove.reproduction import Reproduction, decision_difference, metric_outcome
from ml_assets.launch.events import session_events
from ml_assets.launch.failure import TABLE
from ml_assets.launch.local.launcher import LocalLauncher
from ml_assets.launch.staging.mirror import session_here
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion, latest_decision
from ml_assets.records.record_history import Made
from ml_assets.records.run_record import RUN_FILE, RunRecord
from ml_assets.spec.ensemble import RELEASE
from ml_assets.spec.records import REPORT_FILE, EvaluationReport, StageRecord
from ml_assets.spec.training_program import SCHEMA_FILE, Shard, ShardSchema
from ml_assets.spec.training_program.events import Failed
from ml_assets.store.layout import Address, read_record
from ml_assets.store.objects import LocalObjects
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.snapshots import MAIN


@dataclass(frozen=True)
class ModelWalk:
    """The walk from the training set to the decision, in a clean home."""

    pipeline: Pipeline
    """By the spec that it was trained by."""
    defs: Definitions
    judging: Pipeline
    """By the spec that it was judged by."""
    judging_defs: Definitions
    home: CleanHome
    tell: Tell

    def verdicts(self, claim: Claim) -> Iterator[Reproduction]:
        """A verdict for each asset, as far as the claim went; the caller stops where one differs.

        Raises:
            Interrupted: somebody stopped it.
            StorageError: what it began from, or was compared with, is no longer kept.
        """
        if claim.training_set:
            yield self._training_set(claim.training_set)
        if claim.training and claim.training_set:
            yield self._training(claim.training, claim.training_set, claim.model)
        if claim.report:
            yield self._report(claim.report, claim.training)
            if claim.decision:
                yield self._decision(claim)

    # --- training set ---------------------------------------------------------------------------

    def _training_set(self, made: Made) -> Reproduction:
        key, as_of = made.record.key, made.record.attributes.get("as_of")
        config = (
            {f"{self.pipeline.name}__training_set": {"config": {"as_of": as_of}}} if as_of else {}
        )
        failed = self._make(["training_set"], config)
        if failed:
            return Reproduction(key, "differs", f"it cannot be made: {failed}")
        now = self._record("training_set")
        if now.data_version == made.record.data_version:
            return Reproduction(key, "equal", "")
        said = self._other_rows(made, now)
        return Reproduction(key, "differs", said, 1, made.record.data_version, now.data_version)

    def _other_rows(self, made: Made, now: StageRecord) -> str:
        """Which split differs, by its rows before they are encoded; where those went by age, by
        their digests in its manifest, which stays."""
        rows, found = made.record.attributes["rows"], now.attributes["rows"]
        if rows != found:
            return f"rows {_counts(found)}, {_counts(rows)} then"
        try:
            was, is_now = (_splits(self.pipeline, record) for record in (made.record, now))
        except (StorageError, OSError):
            path = address_of(made).file(SCHEMA_FILE)
            manifest = self.home.real.read_bytes(made.commit, path)
            was_split = ShardSchema.model_validate_json(manifest).splits
            now_split = load_schema(data_ref(self.pipeline, now)).splits
            named = [n for n in was_split if _tables(was_split[n]) != _tables(now_split[n])]
            said = f"other rows in {', '.join(named)}" if named else "rows encoded otherwise"
            return f"{said}; the earlier shards were deleted by age, only their manifest was kept"
        key = self.pipeline.spec.features.key
        said = [differing_rows(was[name], is_now[name], key, name) for name in was]
        return "; ".join(filter(None, said)) or "the same rows, encoded otherwise"

    # --- training -------------------------------------------------------------------------------

    def _training(self, training: RunRecord, data: Made, model: Made | None) -> Reproduction:
        key = f"{self.pipeline.name}/trained_model"
        then = None if model else self._failure(self.home.real_objects, training, data.record)
        if model is None and then is None:
            return Reproduction(key, "not compared", "it did not end: it was interrupted")
        for one in training.inputs:
            if one.key == DISTILL or (one.key == INIT_FROM and one.path == RELEASE):
                self.home.bring_model(one.version)
        commit = next(i.commit for i in training.inputs if i.key == data.record.key)
        self.home.bring_ledger(self.pipeline.name, commit or data.commit)
        fresh = {"config": {"fresh": training.salt}} if training.salt else {}
        config = {f"{self.pipeline.name}__train": fresh} if fresh else {}
        failed = self._make(["checkpoints", "trained_model"], config)
        if model is None:
            now = self._failure(self.home.objects, training, self._record("training_set"))
            return failure_verdict(key, then or "", now, failed)
        if failed:
            return Reproduction(key, "differs", f"it cannot be made: {failed}")
        now = self._record("trained_model")
        if now.data_version == model.record.data_version:
            return Reproduction(key, "equal", "")
        was = model.record.attributes["metrics"]
        outcome, said = metric_outcome(was, now.attributes["metrics"], self._excuse(training))
        return Reproduction(key, outcome, said, 1, model.record.data_version, now.data_version)

    def _excuse(self, training: RunRecord | None) -> str:
        """Why other bits are no difference; empty: they are."""
        if training is None:
            return ""
        store, path = self.home.store, Address(self.pipeline.name, "trained_model").file(RUN_FILE)
        made = RunRecord.model_validate_json(store.read_bytes(store.resolve(MAIN), path))
        return other_devices(training, made)

    def _failure(self, objects: LocalObjects, training: RunRecord, data: StageRecord) -> str | None:
        """How a training without a result ended; None where nothing says that it would again."""
        if checks_of(self.pipeline):
            # asked, not started: wherever it was examined, what it left is read here
            known = LocalLauncher(objects)
            sanity = known.known_sanity(sanity_job(self.pipeline, data_ref(self.pipeline, data)))
            if sanity and sanity.failed:
                return f"not sane: {', '.join(check.name for check in sanity.failed)}"
        session = session_here(objects, training.session)
        events = session_events(session) if session.is_dir() else []
        told = {event.exit_code for event in events if isinstance(event, Failed)}
        code = next((known for known in TABLE if known in told), None)
        return TABLE[code].what if code is not None and TABLE[code].then == "stop" else None

    # --- report and decision --------------------------------------------------------------------

    def _report(self, made: Made, training: RunRecord | None) -> Reproduction:
        key, inputs = made.record.key, made.record.inputs
        judged = next(i for i in inputs if i.key == f"{self.pipeline.name}/trained_model")
        self.home.bring_ledger(self.pipeline.name, judged.commit or made.commit)
        self.home.bring_spread(self.pipeline.name, judged.commit or made.commit)
        rivals = {i.version for i in inputs if i.key == "champion"}
        if champion(read(self.home.store, self.pipeline.name)) == judged.version:
            rivals.add(judged.version)  # made with other bits, it has itself of then as champion
        for rival in rivals:
            self.home.bring_model(rival)
        failed = self._make(["evaluation_report"], {}, judging=True)
        if failed:
            return Reproduction(key, "differs", f"it cannot be made: {failed}")
        now = self._record("evaluation_report")
        versions = made.record.data_version, now.data_version
        if versions[0] == versions[1]:
            return Reproduction(key, "equal", "")
        was, found = made.record.attributes["metrics"], now.attributes["metrics"]
        if was == found:
            return Reproduction(key, "differs", self._other_fields(made), 1, *versions)
        outcome, said = metric_outcome(was, found, self._excuse(training))
        return Reproduction(key, outcome, said, 1, *versions)

    def _other_fields(self, made: Made) -> str:
        path = address_of(made).file(REPORT_FILE)
        then = EvaluationReport.model_validate_json(self.home.real.read_bytes(made.commit, path))
        head = self.home.store.resolve(MAIN)
        found = EvaluationReport.model_validate_json(self.home.store.read_bytes(head, path))
        names = [n for n in type(then).model_fields if getattr(then, n) != getattr(found, n)]
        return f"the same metrics, and other {', '.join(names) or 'bytes'}"

    def _decision(self, claim: Claim) -> Reproduction:
        name, then = f"{self.pipeline.name}/gates", claim.decision
        assert then is not None
        selection = Selection((), gate_keys(self.judging))
        try:
            execute(self.judging_defs, self.home.instance, self.pipeline.name, selection, self.tell)
        except RefusedByGate:
            pass  # a decision as any other: it is compared
        except Interrupted:
            raise
        except MlAssetsError as error:
            return Reproduction(name, "differs", f"no decision: {error}")
        now = latest_decision(
            read(self.home.store, self.pipeline.name), self._record("trained_model").data_version
        )
        if now is None:
            return Reproduction(name, "differs", "no decision was made")
        difference = decision_difference(then, now)
        passed = "passed" if then.passed else "refused, as then"
        return Reproduction(name, "differs" if difference else "equal", difference or passed)

    # --- in the clean home ----------------------------------------------------------------------

    def _make(self, stages: Sequence[str], ops: Mapping[str, Any], *, judging: bool = False) -> str:
        """Make these assets; why it failed, or empty."""
        pipeline, defs = (
            (self.judging, self.judging_defs) if judging else (self.pipeline, self.defs)
        )
        guards = leak_keys(pipeline) if "training_set" in stages else ()
        selection = Selection(tuple(asset_key(pipeline, stage) for stage in stages), guards)
        config = {"ops": dict(ops)} if ops else {}
        try:
            execute(defs, self.home.instance, pipeline.name, selection, self.tell, config)
        except Interrupted:
            raise
        except MlAssetsError as error:
            return str(error)
        return ""

    def _record(self, stage: str) -> StageRecord:
        store = self.home.store
        record = read_record(store, store.resolve(MAIN), Address(self.pipeline.name, stage))
        assert record is not None
        return record


def failure_verdict(key: str, then: str, now: str | None, failed: str) -> Reproduction:
    """Return whether a training failed as it did then.

    Args:
        now: how it ended now, where that is known.
        failed: the error of the run; empty where it succeeded.
    """
    if not failed:
        return Reproduction(
            key, "differs", f"it trained to the end; the run that is proved failed: {then}"
        )
    if now != then:
        return Reproduction(
            key,
            "differs",
            f"it failed for another reason: {now or failed}; the earlier reason: {then}",
        )
    return Reproduction(key, "equal", f"it fails as it did then: {then}")


def _splits(pipeline: Pipeline, record: StageRecord) -> dict[str, pl.DataFrame]:
    ref = data_ref(pipeline, record)
    schema = load_schema(ref)
    pipeline.objects.bring(ref)
    return {name: read_rows(ref, schema, name) for name in schema.splits}


def _tables(shards: Sequence[Shard]) -> list[str]:
    return [shard.table for shard in shards]


def _counts(rows: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in rows.items())
