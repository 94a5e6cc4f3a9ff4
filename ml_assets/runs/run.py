"""Running a pipeline: the due data partitions, then the due part of the model's stages."""

from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import dagster as dg

from ml_assets.assets.graph import DATA_STAGES, STAGES, PipelineGraph
from ml_assets.assets.training_set import resolve_window
from ml_assets.errors import SpecError
from ml_assets.resources.sources import SourcesResource
from ml_assets.runs.decided import gate_is_due
from ml_assets.runs.due import Landed, landed, plan_data, plan_model, reader_partitions
from ml_assets.runs.execute import Selection, Tell, execute, mark_dead_runs
from ml_assets.runs.plan import Plan, contiguous
from ml_assets.settings import Settings
from ml_assets.spec.load import load_spec
from ml_assets.storage.embedded import open_snapshots
from ml_assets.storage.layout import Address


@dataclass(frozen=True)
class Request:
    """What ``ml-assets run`` was asked for."""

    pipeline: str
    as_of: str | None = None
    through: str | None = None
    """Last stage to make; None: all of them."""
    fresh: bool = False


def pipeline_graph(folders: dict[str, Path], name: str) -> PipelineGraph:
    """The graph of a pipeline by its name.

    Raises:
        SpecError: there is no such pipeline, or its spec is wrong.
    """
    if name not in folders:
        raise SpecError(
            f"There is no pipeline {name!r}; found {sorted(folders)}."
            " Check the name, or set ML_ASSETS_PIPELINES to the folder that holds it."
        )
    return PipelineGraph(load_spec(folders[name]), folders[name])


class PipelineRun:
    """One ``ml-assets run``: plans, executes what is due, and tells what it skipped and why."""

    def __init__(
        self,
        graph: PipelineGraph,
        settings: Settings,
        defs: dg.Definitions,
        instance: dg.DagsterInstance,
        tell: Tell,
    ) -> None:
        self.graph = graph
        self.defs = defs
        self.instance = instance
        self.tell = tell
        self.store = open_snapshots(settings.snapshots)
        self.sources = SourcesResource(root=str(settings.sources))

    def run(self, request: Request) -> None:
        """Make everything that is due for the request.

        Raises:
            MlAssetsError: something could not be made; what was made before stays published.
        """
        for run_id in mark_dead_runs(self.instance):
            self.tell(f"run {run_id[:8]} was interrupted; it is marked as failed")
        wanted = STAGES[: STAGES.index(request.through) + 1] if request.through else STAGES
        arrived = landed(self.graph, self.sources)
        self._make_data(wanted, arrived)
        if "training_set" in wanted:
            self._make_model(wanted, request)

    def _make_data(self, wanted: tuple[str, ...], arrived: Landed) -> None:
        plan = plan_data(self.graph, self.store, self.sources, arrived)
        self._tell_plan(plan, wanted)
        sources = [stage for stage in DATA_STAGES[:2] if stage in wanted]
        whole = self._due_keys(plan, sources, partitioned=False)
        if whole:
            self._execute(Selection(whole))
        cut = self._due_keys(plan, sources, partitioned=True)
        for span in contiguous(plan.due_partitions(sources), arrived.keys):
            self._execute(Selection(cut, partitions=span))
        for table in self.graph.spec.tables if "derived_table" in wanted else ():
            self._make_from_function(plan, arrived, "derived_table", table)
        if "feature_set" in wanted:
            self._make_from_function(plan, arrived, "feature_set")

    def _make_from_function(
        self, plan: Plan, arrived: Landed, stage: str, table: str | None = None
    ) -> None:
        address = Address(self.graph.name, stage, table)
        due = [item.node.address for item in plan.due if item.node.address.key == address.key]
        key = self.graph.key(stage, table)
        if any(a.partition is None for a in due):
            self._execute(Selection((key,)))
        order = reader_partitions(self.graph, arrived, table or stage)
        cut = [a.partition for a in due if a.partition is not None]
        for span in contiguous(cut, [k for k in order if k is not None]):
            self._execute(Selection((key,), partitions=span))

    def _make_model(self, wanted: tuple[str, ...], request: Request) -> None:
        base = self.store.resolve("main")
        window = resolve_window(self.graph, self.store, base, request.as_of)
        keys = [k for part in window.splits.values() for k in part] if window else [None]
        fresh = uuid4().hex if request.fresh else None
        plan = plan_model(self.graph, self.store, keys, fresh)
        due = tuple(
            self.graph.key(item.node.address.stage)
            for item in plan.due
            if item.node.address.stage in wanted
        )
        self._tell_plan(plan, wanted)
        gates: tuple[dg.AssetCheckKey, ...] = ()
        if "evaluation_report" in wanted:
            report_is_due = self.graph.key("evaluation_report") in due
            why = "the report is due" if report_is_due else gate_is_due(self.graph, self.store)
            self.tell(f"{'make' if why else 'skip'}  gates: {why or 'decided on this evidence'}")
            gates = self._gate_keys() if why else ()
            released = self.graph.key("released_model")
            if why and "released_model" in wanted and released not in due:
                due = (*due, released)
        if due or gates:
            config = self._config(request.as_of, fresh, due)
            self._execute(Selection(due, gates), config)

    def _config(
        self, as_of: str | None, fresh: str | None, due: tuple[dg.AssetKey, ...]
    ) -> dict[str, object]:
        ops: dict[str, object] = {}
        name = self.graph.name
        if self.graph.key("training_set") in due and as_of:
            ops[f"{name}__training_set"] = {"config": {"as_of": as_of}}
        if self.graph.key("trained_model") in due and fresh:
            ops[f"{name}__train"] = {"config": {"fresh": fresh}}
        return {"ops": ops} if ops else {}

    def _gate_keys(self) -> tuple[dg.AssetCheckKey, ...]:
        report = self.graph.key("evaluation_report")
        return tuple(dg.AssetCheckKey(report, gate.name) for gate in self.graph.spec.gates)

    def _due_keys(
        self, plan: Plan, stages: list[str], *, partitioned: bool
    ) -> tuple[dg.AssetKey, ...]:
        """Assets that are due, with their checks' assets, in the order of the plan."""
        found: dict[dg.AssetKey, None] = {}
        for item in plan.due:
            address = item.node.address
            if address.stage in stages and (address.partition is not None) == partitioned:
                found[self.graph.key(address.stage, address.source)] = None
        return tuple(found)

    def _tell_plan(self, plan: Plan, wanted: tuple[str, ...]) -> None:
        for line in plan.summary():
            stage = line.split()[1].rstrip(":").split("/")[1]
            if stage in wanted:
                self.tell(line)

    def _execute(self, selection: Selection, config: dict[str, object] | None = None) -> None:
        execute(self.defs, self.instance, selection, self.tell, config)
