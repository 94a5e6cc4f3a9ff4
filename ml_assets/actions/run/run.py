"""Runs a pipeline: the due data partitions, then the due part of the model's stages."""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from ml_assets.actions.quarantine import kept_since
from ml_assets.actions.run.data_stages import DataStages, failure_of
from ml_assets.actions.run.fresh_training import FreshTraining
from ml_assets.adapters.declare_asset import asset_key
from ml_assets.adapters.execute import Tell, execute, mark_dead_runs, wait_for_others
from ml_assets.adapters.run_journal import word_tags
from ml_assets.adapters.runs import Definitions, Selection
from ml_assets.adapters.step import Instance
from ml_assets.assets.raw_snapshot.sources import Sources
from ml_assets.assets.trained_model.checks import checks_of
from ml_assets.assets.trained_model.cost.money import in_words, of_time
from ml_assets.assets.training_set.window import require_window
from ml_assets.automation.planner.candidate_runs import (
    CANARY,
    DRIFT,
    CandidateRun,
    before_the_model,
)
from ml_assets.automation.planner.graph_nodes import plan_data, records_by_address, study_node
from ml_assets.automation.planner.landed import Landed, landed
from ml_assets.automation.planner.plan import Plan, plan, retyped
from ml_assets.automation.planner.selection import model_run
from ml_assets.errors import EvidenceError, RefusedByGate, SpecError
from ml_assets.records.data_failures import forget_failures
from ml_assets.records.data_steps import data_steps, last_took
from ml_assets.records.experiments import Words
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion
from ml_assets.records.recent_runs import rows
from ml_assets.records.tracking.mlflow import Tracking
from ml_assets.records.tracking.outbox import Outbox, sentences
from ml_assets.records.tracking.projection import repair_projection
from ml_assets.settings import price_class
from ml_assets.spec.load import SPEC_FILE
from ml_assets.spec.search import SEARCH_FILE
from ml_assets.spec.stages import DRIFT_STAGE, SEARCH_STAGE, STAGES
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline, PipelineState

_LATER = "see the runs with ml-assets models experiments, and add to one with ml-assets models note"


def study_is_over(state: PipelineState) -> str:
    """Return why the study that was published is not asked again."""
    record = state.record(state.address(SEARCH_STAGE))
    told = record.attributes if record else {}
    best = f"trial {told.get('winner')} is its winner"
    if told.get("winner") is None:
        best = "no trial is known to be better than the spec's own setting"
    return f"study {told.get('study')} is over ({told.get('ended')}), and asks the same: {best}"


def expected_cost(pipeline: Pipeline, tables: Container[str]) -> str:
    """Return what it takes to make tables again, and a training after them, by the last times."""
    prices = pipeline.settings.prices
    hour = prices.node_hour(price_class(spot=False), 0)
    took = last_took(data_steps(pipeline.store, pipeline.name, prices), tables)
    said = f"the last time, these tables took {took / 1e6:,.1f} s"
    said += f" ({in_words(of_time(took, hour))})" if hour is not None else ""
    trained = next((row for row in rows(pipeline) if row.seconds is not None), None)
    if trained is not None:
        said += f", and the last training {trained.seconds:,.1f} s"
        said += f" ({trained.cost:,.4f})" if trained.cost is not None else ""
    return said


@dataclass(frozen=True)
class Request:
    """The request to ``ml-assets run``."""

    pipeline: str
    as_of: str | None = None
    through: str | None = None
    """Last stage to make; None: all of them."""
    fresh: bool | None = None
    """True: train again from nothing; False: drop such a training that was interrupted."""
    epochs: int | None = None
    """Train for so many instead of the spec's."""
    search: bool = False
    """Ask the study of ``search.yaml`` first."""
    words: Words = field(default_factory=Words)
    """Why the run is made, for people who compare runs."""


class PipelineRun:
    """One ``ml-assets run``: plans, executes what is due, and tells what it skipped and why."""

    def __init__(
        self,
        pipeline: Pipeline,
        defs: Definitions,
        instance: Instance,
        tell: Tell,
    ) -> None:
        self.pipeline = pipeline
        self.defs = defs
        self.instance = instance
        self.tell = tell
        self.store = pipeline.store
        self.sources = Sources(pipeline.settings)
        self._fresh = FreshTraining(pipeline.settings.home, pipeline.name)

    def run(self, request: Request) -> None:
        """Make everything that is due for the request.

        Raises:
            MlAssetsError: something could not be made; what was made stays published. Data that
                could not be made keeps no other data back, but the model.
        """
        for run_id in mark_dead_runs(self.instance):
            self.tell(f"run {run_id[:8]} was interrupted; it is marked as failed")
        wanted = STAGES[: STAGES.index(request.through) + 1] if request.through else STAGES
        require_window(self.pipeline, request.as_of, wanted)  # before any data is made
        if request.search and self.pipeline.search is None:
            raise SpecError(
                f"{self.pipeline.name} has nothing to search: write {SEARCH_FILE} beside its spec,"
                f" {self.pipeline.folder / SPEC_FILE}. docs/search.md shows one."
            )
        self._repair_projection()  # a run that is refused recalled data goes no further
        self._fresh_is_made()
        self._wait_for_others()  # what they make is not planned again
        arrived = self._arrived()
        for said in arrived.waiting:
            self.tell(f"wait  {said}")
        self._make_data(wanted, arrived, search=request.search)
        if request.through is None:
            self._make_before_the_model()
        if request.search:
            self._search(request)
        if "training_set" in wanted:
            self._wait_for_others()
            try:
                self._make_model(wanted, request)
            except RefusedByGate as error:
                raise RefusedByGate(f"{error}\n{self._stands(request)}") from error
        self._pay_debts()

    def _arrived(self) -> Landed:
        return landed(
            self.pipeline, self.sources, records_by_address(self.store, self.pipeline.name)
        )

    def _make_data(self, wanted: tuple[str, ...], arrived: Landed, *, search: bool) -> None:
        def look() -> Plan:
            records = records_by_address(self.store, self.pipeline.name)
            found, away = plan_data(self.pipeline, arrived, records)
            if away:
                raise away
            return found

        plan = look()
        self._tell_plan(plan, wanted)
        self._tell_other_columns(plan)
        stages = DataStages(self.pipeline, look, self._execute)
        begun = datetime.now(UTC)
        stages.run(plan, wanted)
        for kept in kept_since(self.pipeline, begun):
            self.tell(f"kept  {kept}")
        for address in stages.left:
            if address.stage in wanted:
                self.tell(f"leave {address}: what it is made from could not be made")
        if stages.failures:
            raise failure_of(stages.failures, wanted, search=search)
        forget_failures(self.store, self.pipeline.name, wanted)

    def _tell_other_columns(self, plan: Plan) -> None:
        """What other columns of a source cost, before anything is made again."""
        records = records_by_address(self.store, self.pipeline.name)
        told = retyped(plan, records)
        for said in told:
            self.tell(f"note  {said}")
        if told:
            again = {str(i.node.address) for i in plan.due if i.node.address in records}
            self.tell(f"note  {expected_cost(self.pipeline, again)}")

    def make_alone(self, look: Callable[[Pipeline], CandidateRun | str]) -> None:
        """Make one thing that is due, and nothing else, when nobody is at work.

        Args:
            look: what is due then; else why nothing is, in words.

        Raises:
            EvidenceError: nothing is due, or it was made and refused.
        """
        mark_dead_runs(self.instance)
        self._wait_for_others()
        step = look(self.pipeline)
        if isinstance(step, str):
            raise EvidenceError(f"{self.pipeline.name}: {step}")
        self._execute(step.selection)
        self._pay_debts()

    def _make_before_the_model(self) -> None:
        """New periods against the release of now, then the model in canary, before another takes
        its place. A canary that does not pass stops nothing."""
        for place, step in before_the_model(self.pipeline):
            asset = DRIFT_STAGE if place == DRIFT else place
            if isinstance(step, str):
                if step:
                    self.tell(f"skip  {asset}: {step}")
                continue
            self.tell(f"make  {asset}: {step.reason}")
            try:
                self._execute(step.selection)
            except EvidenceError as error:
                if place != CANARY:
                    raise
                self.tell(str(error))

    def _make_model(self, wanted: tuple[str, ...], request: Request) -> None:
        salt = None
        if "trained_model" in wanted:
            salt, said = self._fresh.salt(request.fresh, request.as_of, request.epochs)
            if said:
                self.tell(said)
        due = model_run(
            self.pipeline, as_of=request.as_of, fresh=salt, epochs=request.epochs, stages=wanted
        )
        self._tell_plan(due.plan, wanted)
        if checks_of(self.pipeline):
            verb = "make" if due.sanity else "skip"
            self.tell(f"{verb}  sanity checks: {due.sanity or 'same training set, same model'}")
        if "evaluation_report" in wanted:
            verb = "make" if due.gates else "skip"
            self.tell(f"{verb}  gates: {due.gates or 'decided on this evidence'}")
        if due.selection is not None:
            if "evaluation_report" in wanted:
                self._require_champion()
            try:
                self._execute(due.selection, due.config, word_tags(request.words))
            finally:
                self._fresh_is_made()
        elif request.words.said():
            self.tell(f"no run was needed, so your words were not kept: {_LATER}")
        if due.refusal:
            raise RefusedByGate(f"{self.pipeline.name}: {due.refusal}")

    def _require_champion(self) -> None:
        """Refuse a champion that cannot be compared with before the training, not after it."""
        from ml_assets.assets.evaluation_report.evaluator import rival_of

        rival_of(self.pipeline.now(), "")

    def _search(self, request: Request) -> None:
        """The study on the training set of now; the model that follows adopts its winner."""
        from ml_assets.assets.hyperparameter_search.page import published_study
        from ml_assets.assets.hyperparameter_search.study_advice import unused_winner, verdict

        self._wait_for_others()
        own = self.pipeline.declared
        due = model_run(own, as_of=request.as_of, stages=("training_set",))
        if due.selection is not None and due.selection.assets:
            self._execute(due.selection, due.config)
        node = study_node(own)
        (found,) = plan([node], records_by_address(self.store, own.name)).items
        if found.due:
            self.tell(f"make  {node.address.key}: {found.reason}")
            self._execute(Selection((asset_key(own, SEARCH_STAGE),)))
        else:
            self.tell(f"skip  {node.address.key}: {study_is_over(own.now())}")
        if study := published_study(own):
            for said in (*verdict(study), *unused_winner(study, own.search)):
                self.tell(f"search: {said}")
        self.pipeline = own.with_winner()

    def _stands(self, request: Request) -> str:
        """What a refusal leaves as it was, and what to do about a winner that was refused."""
        name, stage = self.pipeline.name, self.pipeline.spec.release.to
        there = champion(read(self.store, name), stage)
        said = f"{stage} keeps model {there[:12]}" if there else f"nothing is in {stage} yet"
        if not request.search or self.pipeline.search is None or not self.pipeline.search.adopt:
            return said
        return (
            f"{said}. The search is over: its winner was the best on validation, and these gates"
            " judge its model on the holdout, which no trial saw.\n"
            f"is its gain larger than the noise of seeds?  ml-assets models search {name} --open\n"
            "to train by the spec's own setting again, remove `adopt: true` from search.yaml; to"
            " search again, change its `parameters`"
        )

    def _fresh_is_made(self) -> None:
        records = records_by_address(self.store, self.pipeline.name)
        self._fresh.made(records.get(Address(self.pipeline.name, "trained_model")))

    def _pay_debts(self) -> None:
        """Tell MLflow what it could not take before; it is not even loaded where it has all."""
        settings = self.pipeline.settings
        outbox = Outbox(settings.home, self.pipeline.objects)
        for line in sentences(outbox.deliver(Tracking.of(settings))):
            self.tell(line)
        self._repair_projection()

    def _repair_projection(self) -> None:
        """The same of the stages and the recalls."""
        repaired = repair_projection(self.store, self.pipeline.settings, self.pipeline.name)
        if repaired:
            self.tell(repaired)

    def _tell_plan(self, plan: Plan, wanted: tuple[str, ...]) -> None:
        for line in plan.summary():
            stage = line.split()[1].rstrip(":").split("/")[1]
            if stage in wanted:
                self.tell(line)

    def _execute(
        self,
        selection: Selection,
        config: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._wait_for_others()
        execute(self.defs, self.instance, self.pipeline.name, selection, self.tell, config, tags)

    def _wait_for_others(self) -> None:
        wait_for_others(self.instance, self.pipeline.name, self.tell)
