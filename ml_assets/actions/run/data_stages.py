"""Makes the data stages. A failure is set apart, with everything made from it."""

from collections.abc import Callable, Collection, Sequence

from ml_assets.adapters.runs import Selection
from ml_assets.automation.planner.landed import calendar
from ml_assets.automation.planner.plan import Item, Plan
from ml_assets.automation.planner.selection import alike, data_runs
from ml_assets.automation.planner.steps import WalkStep, data_steps
from ml_assets.errors import RunFailed
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import Pipeline

Make = Callable[[Selection], object]
"""Runs a selection; raises RunFailed."""


class DataStages:
    """The data stages of one ``ml-assets run``.

    A step of Dagster fails as a whole, and what comes after it is then skipped for every partition
    of the run. So what is still due after a failure is run again without what failed.
    """

    def __init__(self, pipeline: Pipeline, look: Callable[[], Plan], make: Make) -> None:
        self.look = look
        """What is due now."""
        self.failures: list[RunFailed] = []
        self.left: list[Address] = []
        """What is not made, for it is made from something that failed."""
        self._pipeline = pipeline
        self._make = make
        self._apart: set[Address] = set()
        """What failed, and all that is made from it."""

    def run(self, plan: Plan, stages: Collection[str]) -> None:
        """Make what is due of the stages, step by step."""
        for step in data_steps(self._pipeline):
            while due := self._due(step, plan, stages):
                before = len(self.failures)
                for group in alike(due) if self.failures else [due]:
                    plan = self._runs(group, plan)
                if len(self.failures) == before:
                    break

    def _due(self, step: WalkStep, plan: Plan, stages: Collection[str]) -> list[Item]:
        return [
            item
            for item in step.of(plan.due)
            if item.node.address.stage in stages and item.node.address not in self._apart
        ]

    def _runs(self, due: Sequence[Item], plan: Plan) -> Plan:
        """Make the items; the plan as it is afterwards."""
        failed: list[RunFailed] = []
        for selection in data_runs(self._pipeline, due, calendar(self._pipeline)):
            try:
                self._make(selection)
            except RunFailed as error:
                failed.append(error)
        if not failed:
            return plan
        self.failures += failed
        plan = self.look()
        self._set_apart(due, plan, {step for error in failed for step in error.steps})
        return plan

    def _set_apart(self, tried: Sequence[Item], plan: Plan, steps: Collection[str]) -> None:
        """Set apart what was tried and is still due: a failed step's part of it, else all."""
        still = {item.node.address for item in tried} & {i.node.address for i in plan.due}
        own = {address for address in still if address.key.replace("/", "__") in steps} or still
        self._apart |= own
        for item in plan.items:
            node = item.node
            if node.address not in self._apart and self._apart.intersection(node.inputs):
                self._apart.add(node.address)
                self.left.append(node.address)


def failure_of(
    failures: Sequence[RunFailed], stages: Collection[str], *, search: bool
) -> RunFailed:
    """All of them as one error, and what of the asked stages was therefore not begun."""
    said = [str(error) for error in failures]
    if "training_set" in stages:
        begun = "No search was begun, and no model made" if search else "No model was made"
        said.append(f"{begun}, because not all data that has arrived could be made.")
    return RunFailed("\n".join(said))
