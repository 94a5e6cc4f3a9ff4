"""Finds what a pipeline could make now, one run per partition, with the inputs of each.

Level-triggered: everything is read from the store at every tick, and nothing relies on memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ml_assets.adapters.declare_asset import asset_key
from ml_assets.adapters.runs import Selection
from ml_assets.assets.drift_report.windows import drift_windows
from ml_assets.assets.released_model.asset import STAGE as RELEASED
from ml_assets.automation.planner.graph_nodes import model_nodes, under_published_code
from ml_assets.automation.planner.plan import Item, Node, Plan, plan
from ml_assets.automation.planner.selection import ModelRun, model_run, put_out, standing_refusal
from ml_assets.automation.planner.steps import WalkStep
from ml_assets.errors import Recalled
from ml_assets.load_extras import load_extra
from ml_assets.spec.base import digest_of
from ml_assets.spec.records import StageRecord
from ml_assets.spec.stages import DRIFT_STAGE
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline

MODEL = "model"
CANARY = "canary"
DRIFT = "drift"
Records = Mapping[Address, StageRecord]


@dataclass(frozen=True)
class CandidateRun:
    """One thing that is due: the sources or features of a partition, or the model."""

    place: str
    """Names it in the cursor and in messages: ``sources [2013-12-23]``."""
    items: tuple[Item, ...]
    wanted: str
    """Digest of what it would be made from: the same until its sources or its code change."""
    replaces: str
    """Digest of what is there now: it tells a second candidate for the same from the first."""
    model: ModelRun | None = None
    because: str = ""
    """Why it is asked for; empty where its items or its gates say so."""

    @property
    def partition(self) -> str | None:
        return self.items[0].node.address.partition if self.items else None

    @property
    def reason(self) -> str:
        if self.because or self.items:
            return self.because or self.items[0].reason
        return self.model.gates if self.model else ""

    @property
    def selection(self) -> Selection:
        """What its run makes; empty for data, whose runs are grouped by partition range."""
        return (self.model and self.model.selection) or Selection()


def data_candidates(step: WalkStep, plan: Plan, records: Records) -> list[CandidateRun]:
    """Return what one step could make now."""
    if step.name == "sources":
        return _source_candidates(step, plan, records)
    return _function_candidates(step, plan, records)


def _source_candidates(step: WalkStep, plan: Plan, records: Records) -> list[CandidateRun]:
    """The partitions whose snapshot or validated table is due.

    ``wanted`` covers the partition whole, whatever part of it is published already: an attempt
    that got half-way and failed is not a new candidate.
    """
    candidates: list[CandidateRun] = []
    for partition, items in _by_partition(step.of(plan.items)).items():
        due = tuple(item for item in items if item.due)
        if due:
            nodes = [item.node for item in items]
            made_from = [
                [str(n.address), n.code_version, [version.version for version in n.fixed]]
                for n in nodes
            ]
            candidates.append(
                CandidateRun(
                    _place(step.name, partition),
                    due,
                    digest_of(made_from),
                    _digest_of_published(nodes, records),
                )
            )
    return candidates


def _function_candidates(step: WalkStep, plan: Plan, records: Records) -> list[CandidateRun]:
    """The partitions that are due and whose tables are all published as they are."""
    unmade = {item.node.address for item in plan.due}
    candidates: list[CandidateRun] = []
    for partition, items in _by_partition(step.of(plan.items)).items():
        for item in items:
            node = item.node
            if not item.due or any(a in unmade or a not in records for a in node.inputs):
                continue
            made_from = [node.code_version, _versions(node.inputs, records)]
            made_from += [node.salt] if node.salt else []
            candidates.append(
                CandidateRun(
                    _place(step.name, partition),
                    (item,),
                    digest_of(made_from),
                    _digest_of_published([node], records),
                )
            )
    return candidates


def model_candidate(
    pipeline: Pipeline,
    records: Records,
    *,
    as_of: str | None,
    data_only: bool,
) -> CandidateRun | str:
    """The run of the model's stages that is due; else the reason why none is, in words.

    Args:
        as_of: last partition of the window; None: the newest published.
        data_only: due because data changed; code that changed is not looked at.

    Raises:
        WindowError: the partitions of the window are not all published.
    """
    found = model_run(pipeline, as_of=as_of)
    if found.refusal:
        return f"the model of {found.as_of or 'all rows'} remains refused: {found.refusal}"
    keys = _feature_keys(found.plan)
    nodes = model_nodes(pipeline, keys)
    inputs = [a for node in nodes for a in node.inputs if a.stage == "feature_set"]
    if not records.keys() >= {*inputs}:  # without partitions, no window has checked for them
        return f"the model waits until {pipeline.name}/feature_set is made"
    judged = plan(under_published_code(nodes, records), records) if data_only else found.plan
    due = judged.due
    stages = {item.node.address.stage for item in due}
    if not due and (data_only or not found.gates):
        return f"the model of {found.as_of or 'all rows'} is made from what is published"
    if stages <= {RELEASED} and not found.gates:
        held, refusal = put_out(pipeline), standing_refusal(pipeline)
        if held:
            return f"the model of {found.as_of or 'all rows'} is not released again: {held}"
        if refusal:
            return f"the model of {found.as_of or 'all rows'} remains refused: {refusal}"
    made_from = [_versions(inputs, records)]
    if not data_only:
        policy = [gate.model_dump(mode="json") for gate in pipeline.spec.gates]
        made_from += [[node.code_version for node in nodes], policy]
    return CandidateRun(
        MODEL,
        due,
        digest_of(made_from),
        _digest_of_published(nodes, records),
        found,
    )


def before_the_model(pipeline: Pipeline) -> Iterator[tuple[str, CandidateRun | str]]:
    """Yield the runs that judge the present model: the drift report, then the canary's.

    They come after the data, and before another model takes the place of the present one.

    Yields:
        ``DRIFT`` or ``CANARY``, and the run where it is due; else why it is not, in words, empty
        where the spec watches for no drift. Each is looked for when it is asked for.
    """
    yield DRIFT, drift_candidate(pipeline)
    if pipeline.spec.release.canary != "none":
        yield CANARY, _canary_candidate(pipeline)


def _canary_candidate(pipeline: Pipeline) -> CandidateRun | str:
    try:
        return load_extra("release.canary").canary_candidate(pipeline)
    except Recalled as error:  # the next model is made from sound rows: it is not held up
        return f"the model in canary stays there: {error}"


def drift_candidate(pipeline: Pipeline) -> CandidateRun | str:
    """The drift report that is due; else why none is, empty where the spec watches for no drift.

    It is due where a period came after all that the release has seen.

    ``wanted`` stays the same until the release, a period or the spec changes.

    Raises:
        StorageError: the baseline of the release is not the one that was certified.
    """
    if pipeline.spec.drift is None:
        return ""
    state = pipeline.now()
    try:
        windows = drift_windows(state)
    except Recalled as error:  # the next model is made from sound rows: it is not held up
        return f"no drift is looked for: {error}"
    if isinstance(windows, str):
        return windows
    wanted = windows.work(pipeline, "").run_key
    record = state.record(state.address(DRIFT_STAGE))
    if record is not None and record.run_key == wanted:
        return f"{windows.newest} is judged against the release, and has not changed since"
    how = "changed" if windows.newest in windows.changed else "came"
    reason = f"{windows.newest} {how} after the release, and was not compared with it yet"
    selection = Selection((asset_key(pipeline, DRIFT_STAGE),))
    up_to = windows.newest if windows.cut is None else ""
    there = "" if record is None else _digest([record])
    return candidate_up_to(DRIFT, selection, up_to, reason, wanted, there)


def candidate_up_to(
    place: str,
    selection: Selection,
    partition: str,
    reason: str,
    wanted: str,
    replaces: str = "",
) -> CandidateRun:
    """A run of neither data nor training, up to a partition."""
    model = ModelRun(Plan(()), "", "", selection, partition)
    return CandidateRun(place, (), wanted, replaces, model, because=reason)


def _by_partition(items: Sequence[Item]) -> dict[str | None, list[Item]]:
    found: dict[str | None, list[Item]] = {}
    for item in items:
        found.setdefault(item.node.address.partition, []).append(item)
    return found


def _place(part: str, partition: str | None) -> str:
    return f"{part} [{partition}]" if partition else part


def _versions(addresses: Sequence[Address], records: Records) -> list[list[str]]:
    return [[str(a), records[a].data_version if a in records else ""] for a in addresses]


def _digest_of_published(nodes: Sequence[Node], records: Records) -> str:
    return _digest([records[node.address] for node in nodes if node.address in records])


def _digest(records: Sequence[StageRecord]) -> str:
    return digest_of([[record.key, record.time.isoformat()] for record in records])


def _feature_keys(plan: Plan) -> list[str | None]:
    return [a.partition for a in plan.items[0].node.inputs]
