"""The hours that the trainings of a study held, as the cost account counts them."""

from collections.abc import Sequence
from dataclasses import dataclass

from ml_assets.launch.session_folder import SessionFolder
from ml_assets.launch.usage import keep_usage, session_usages
from ml_assets.spec.search import Budget
from ml_assets.spec.usage import AttemptUsage
from ml_assets.store.objects import LocalObjects


@dataclass(frozen=True)
class Hours:
    """What was held, as the cost account counts it."""

    machine: float = 0.0
    gpu: float = 0.0

    def __add__(self, other: "Hours") -> "Hours":
        return Hours(self.machine + other.machine, self.gpu + other.gpu)

    def __sub__(self, other: "Hours") -> "Hours":
        return Hours(self.machine - other.machine, self.gpu - other.gpu)

    def spends(self, budget: Budget | None) -> str:
        """Which budget this is all of; empty: none."""
        if budget is None:
            return ""
        if budget.machine_hours is not None and self.machine >= budget.machine_hours:
            return f"the budget of {budget.machine_hours:g} machine hours is spent"
        if budget.gpu_hours is not None and self.gpu >= budget.gpu_hours:
            return f"the budget of {budget.gpu_hours:g} GPU hours is spent"
        return ""


NOTHING = Hours()


def usages_of(objects: LocalObjects, session: str) -> Sequence[AttemptUsage]:
    """What the attempts of a session used that have ended, oldest first."""
    folder = objects.path("sessions", session)
    return session_usages(SessionFolder(folder)) if (folder / "attempts").is_dir() else ()


def used_by(objects: LocalObjects, session: str) -> Hours:
    """What they held, all together."""
    found = Hours()
    for usage in usages_of(objects, session):
        held = usage.held
        since = held.scheduled or held.started or held.ended  # the wait for a machine is free
        hours = held.nodes * (held.ended - since).total_seconds() / 3600
        found += Hours(hours, hours * held.gpus_per_node)
    return found


def mark_pruned(objects: LocalObjects, session: str) -> None:
    """The time of a pruned trial was no failure: the account reads how its last attempt ended."""
    usages = usages_of(objects, session)
    if usages and usages[-1].end == "stopped":
        pruned = usages[-1].model_copy(update={"end": "pruned"})
        keep_usage(SessionFolder(objects.path("sessions", session)), pruned)
