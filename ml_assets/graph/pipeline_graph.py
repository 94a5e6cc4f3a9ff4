"""One pipeline's asset graph as plain values: keys, partitions, code versions, attributes."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
from pydantic import BaseModel

from ml_assets.errors import SpecError, WindowError
from ml_assets.graph.stage_code import function_code, stage_code
from ml_assets.graph.step_failure import reported
from ml_assets.spec.canonical import digest_of
from ml_assets.spec.gates import FunctionBaseline
from ml_assets.spec.leaks import FutureEvents
from ml_assets.spec.partitions import windows
from ml_assets.spec.pipeline import PartitionsSpec, PipelineSpec
from ml_assets.spec.program.identity import Program
from ml_assets.spec.sources import SourceSpec
from ml_assets.spec.split import groups_of
from ml_assets.spec.stages import DRIFT_STAGE
from ml_assets.spec.training import RELEASE, without_meaning
from ml_assets.store.layout import Address

Decorator = Callable[[Callable[..., Any]], dg.AssetsDefinition]
GPU_POOL = "gpu"
"""On a cluster: what every run that trains on GPUs waits for in the queue."""


@dataclass(frozen=True)
class PipelineGraph:
    """A spec and the folder it was declared in."""

    spec: PipelineSpec
    folder: Path
    on_cluster: bool = False
    """The cluster profile: each partition is a run of its own, and work on GPUs queues for them."""
    shown_until: date | None = None
    """Where the partitions that Dagster is told of end; None: with those of the spec."""

    @property
    def name(self) -> str:
        return self.spec.name

    def key(self, stage: str, source: str | None = None) -> dg.AssetKey:
        return dg.AssetKey(Address(self.name, stage, source).key.split("/"))

    def pool(self, stage: str = "", *, partitioned: bool = False) -> str | None:
        """What the runs of a stage hold while they work; the others wait in the queue.

        On a laptop the pipeline: one run at a time writes it. On a cluster partitions are made side
        by side (each is published on its own), and GPUs are waited for by all pipelines together.
        """
        if not self.on_cluster:
            return self.name
        if partitioned:
            return None
        on_gpus = stage == "trained_model" and self.spec.cluster.gpus_per_node > 0
        return GPU_POOL if on_gpus else self.name

    def backfill_policy(
        self, partitions: dg.PartitionsDefinition | None
    ) -> dg.BackfillPolicy | None:
        """How many runs make a range: one on a laptop, one for each partition on a cluster."""
        if partitions is None:
            return None
        one_each = dg.BackfillPolicy.multi_run(max_partitions_per_run=1)
        return one_each if self.on_cluster else dg.BackfillPolicy.single_run()

    def partitions(self, source: SourceSpec | None = None) -> dg.PartitionsDefinition | None:
        """The partitions of a data stage; None where the data is read whole."""
        if source is not None and not source.partitioned:
            return None
        return partitions_definition(self._calendar)

    @property
    def _calendar(self) -> PartitionsSpec:
        partitions = self.spec.partitions
        shown = self.shown_until
        return partitions.model_copy(update={"end": shown}) if shown else partitions

    def feature_partitions(self) -> dg.PartitionsDefinition | None:
        """The partitions of feature_set: the first ones are only looked back at."""
        return self._partitions_after(self.warm_up("feature_set"))

    def table_partitions(self, table: str) -> dg.PartitionsDefinition | None:
        """The partitions of a derived table; None where everything that it reads is read whole."""
        return self._partitions_after(self.warm_up(table)) if self.is_partitioned(table) else None

    def is_partitioned(self, name: str) -> bool:
        """Whether a source or a derived table is cut in time."""
        return self.spec.is_partitioned(name)

    def is_versioned(self, name: str) -> bool:
        """Whether it is a source that changes slowly, of which each partition has one version."""
        source = self.spec.sources.get(name)
        return source is not None and source.versioned

    def warm_up(self, name: str) -> int:
        """How many partitions come before the first one of a source, a table or feature_set."""
        if name in self.spec.sources:
            return 0
        if name == "feature_set":
            return self.spec.features.look_back + self._warm_up_of([*self.spec.tables])
        table = self.spec.tables[name]
        return table.look_back + self._warm_up_of(table.reads)

    def _warm_up_of(self, names: Sequence[str]) -> int:
        return max((self.warm_up(name) for name in names), default=0)

    def _partitions_after(self, warm_up: int) -> dg.PartitionsDefinition | None:
        partitions = self._calendar
        if partitions.cadence == "none" or not warm_up:
            return partitions_definition(partitions)
        first = windows(self.spec.partitions, datetime.now(UTC))[warm_up : warm_up + 1]
        if not first:
            raise WindowError(
                f"{self.name}: look_back needs {warm_up} partitions, but fewer have passed"
                f" since partitions.start {partitions.start}. Start earlier, or look back less."
            )
        start = first[0].start.astimezone(ZoneInfo(partitions.timezone)).date()
        return partitions_definition(partitions.model_copy(update={"start": start}))

    def asset(self, stage: str, source: str | None = None, **more: Any) -> Decorator:
        """``dg.asset`` with the attributes that every asset of the pipeline declares."""
        partitions: dg.PartitionsDefinition | None = more.get("partitions_def")
        asset: Any = dg.asset(
            **self.attributes(stage, source),
            pool=self.pool(stage, partitioned=partitions is not None),
            backfill_policy=self.backfill_policy(partitions),
            **more,
        )
        return lambda step: asset(reported(step))

    def attributes(self, stage: str, source: str | None = None) -> dict[str, Any]:
        """What every asset of the pipeline declares: key, group, owner, code version, tags."""
        return {
            "key": self.key(stage, source),
            "group_name": self.name,
            "owners": [self.spec.owner],
            "code_version": self.code_version(stage, source),
            "tags": {"pipeline": self.name, "stage": stage},
            "freshness_policy": self._freshness(stage),
        }

    def _freshness(self, stage: str) -> dg.FreshnessPolicy | None:
        declared = self.spec.automation.freshness
        bounds = {
            "feature_set": declared.data,
            "training_set": declared.data,
            "released_model": declared.model,
        }
        bound = bounds.get(stage)
        return dg.FreshnessPolicy.time_window(fail_window=bound) if bound else None

    def code_version(self, stage: str, source: str | None = None) -> str:
        """Digest of the part of the spec and of the code that decide this stage's content."""
        kind = self.spec.sources[source].kind if stage == "raw_snapshot" and source else ""
        return digest_of(
            {
                "spec": _plain(self._spec_part(stage, source)),
                "code": stage_code(stage, kind),
                "files": self._file_digests(stage, source),
            }
        )[:16]

    def with_epochs(self, epochs: int | None) -> "PipelineGraph":
        """The graph of a spec that says so many epochs; None: as it is.

        Its model has a code version and a session of its own: neither is taken for the other.

        Raises:
            SpecError: there are no such epochs, or the model's family has none.
        """
        if epochs is None:
            return self
        model, training = self.spec.model, self.spec.training
        if "epochs" in without_meaning(model):
            raise SpecError(
                f"{self.name}: epochs {epochs} was asked for, and model.family {model.family!r} has"
                " none. Set model.rounds in the spec."
            )
        if epochs < 1:
            raise SpecError(f"{self.name}: epochs is {epochs}; it takes at least one to train.")
        changed = training.model_copy(update={"epochs": epochs})
        return replace(self, spec=self.spec.model_copy(update={"training": changed}))

    def with_asked_epochs(self, epochs: int | None) -> "PipelineGraph":
        """The graph of a training that was recorded with so many; None: its family has none."""
        return self.with_epochs(None if epochs == self.spec.training.epochs else epochs)

    def trained_by(self, program: Program | None) -> str:
        """The code version of a model; of an older program (None: that of here) it is another."""
        here = self.code_version("trained_model")
        return here if program is None else digest_of([here, program.digest])[: len(here)]

    def _spec_part(self, stage: str, source: str | None) -> object:
        spec = self.spec
        table = spec.sources.get(source or "")
        if table is not None:  # how old it may get, or is looked at, changes nothing in it
            table = table.model_copy(update={"freshness": None, "settled": None})
        # what can be predicted does not touch what is trained on
        features = spec.features.model_copy(update={"subject": None})
        # what is made again at the features is not asked of the training set
        guards = spec.leaks.model_copy(update={"future_events": FutureEvents()})
        # what is only looked at is no other model
        training = spec.training.model_copy(update={"profile": None})
        parts: Mapping[str, object] = {
            "raw_snapshot": table,
            "validated_table": table,
            "derived_table": [spec.tables.get(source or ""), spec.partitions],
            "feature_set": [
                features,
                spec.label,
                spec.partitions,
                spec.leaks.future_events,
                groups_of(spec.split),
            ],
            "online_features": [spec.online, spec.features.key, spec.features.decision_at],
            "training_set": [features, spec.label, spec.split, guards],
            "checkpoints": [spec.model, training],
            "trained_model": [spec.model, training],
            "evaluation_report": [spec.evaluation, *spec.gates],
            "released_model": [spec.release, *spec.gates],
            "canary_report": [spec.evaluation, spec.release, *spec.gates],
            "promoted_model": [spec.release, *spec.gates],
            # whether it trains does not touch what it says
            DRIFT_STAGE: spec.drift and spec.drift.model_copy(update={"retrain": None}),
        }
        return parts[stage]

    def _file_digests(self, stage: str, source: str | None) -> dict[str, str]:
        if stage == "validated_table" and source:
            contract = self.spec.sources[source].contract
            return {contract: contract_digest(self.folder / contract)}
        if stage == "derived_table" and source:
            function = self.spec.tables[source].function
            return {function: function_code(self.folder, function)}
        if stage == "feature_set":
            function = self.spec.features.function
            return {function: function_code(self.folder, function)}
        if stage == "evaluation_report":
            rules = {
                one.function
                for one in self.spec.evaluation.baselines
                if isinstance(one, FunctionBaseline)
            }
            return {function: function_code(self.folder, function) for function in rules}
        begin = self.spec.training.init_from
        if stage in ("checkpoints", "trained_model") and begin not in (None, RELEASE):
            return {begin: file_digest(self.folder / begin)}
        return {}


def partitions_definition(spec: PartitionsSpec) -> dg.PartitionsDefinition | None:
    """Dagster's partitions for a declared cadence."""
    if spec.cadence == "none" or spec.start is None:
        return None
    start, end = spec.start.isoformat(), spec.end.isoformat() if spec.end else None
    if spec.cadence == "hourly":
        return dg.HourlyPartitionsDefinition(
            f"{start}-00:00", f"{end}-00:00" if end else None, timezone=spec.timezone
        )
    if spec.cadence == "daily":
        return dg.DailyPartitionsDefinition(start, end_date=end, timezone=spec.timezone)
    if spec.cadence == "monthly":
        return dg.MonthlyPartitionsDefinition(start, end_date=end, timezone=spec.timezone)
    return dg.WeeklyPartitionsDefinition(
        start, end_date=end, timezone=spec.timezone, day_offset=spec.day_offset
    )


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes; of nothing where there is no such file (reading it says so)."""
    return hashlib.sha256(path.read_bytes() if path.is_file() else b"").hexdigest()


def contract_digest(file: Path) -> str:
    """The digest of what a contract says, in any layout; of its bytes where it is no JSON."""
    try:
        return digest_of(json.loads(file.read_bytes()))
    except (OSError, ValueError):  # reading it says why
        return file_digest(file)


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
