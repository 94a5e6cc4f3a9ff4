"""Plans the trainings of a study, and their names."""

from dataclasses import dataclass, replace

from pydantic import ValidationError

from ml_assets.assets.hyperparameter_search.optuna_study import Proposal, TrainingPart
from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.session_name import NOT_IN_THE_RESULT, program_of
from ml_assets.spec.base import digest_of
from ml_assets.spec.cluster import ClusterSpec
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.search import SearchSpec, with_values
from ml_assets.spec.search_parameter import Values
from ml_assets.spec.training import Boosted


@dataclass(frozen=True)
class StudyPlan:
    """Holds what a study trains: the spec, its training set, and what is searched."""

    spec: PipelineSpec
    search: SearchSpec
    base: TrainJob
    """The training by the spec's own setting."""
    parallel: int
    processes: int | None
    """Processes of each trial; None: as many as the spec says."""

    def fits(self, values: Values) -> bool:
        """Return whether the spec takes these values together."""
        try:
            with_values(self.spec, values)
        except ValidationError:
            return False
        return True

    @property
    def name(self) -> str:
        """Named by everything that decides its trials, and by nothing else: more of them, another
        budget or another pace go on with the same study."""
        base = self.base
        asked = {
            "space": self.search.space,
            "method": self.search.method,
            "then": self.search.then and self.search.then.model_dump(),
            "prune": self.search.prune and self.search.prune.model_dump(),
            "seed": self.search.seed,
            "metric": self.search.metric,
            **(
                {"population": [self.search.trials, self.search.rounds]}
                if self.search.rounds
                else {}
            ),
            "model": base.model.model_dump(mode="json"),
            "training": base.training.model_dump(mode="json", exclude=NOT_IN_THE_RESULT),
            "data": base.data.digest,
            "init": base.init.digest if base.init else None,
            **({"teacher": base.teacher.digest} if base.teacher else {}),
            **({"code": base.code.digest} if base.code else {}),
            "program": program_of(base).digest,
        }
        return f"{base.pipeline}-study-{digest_of(asked)[:20]}"

    def job(self, proposal: Proposal, seed: int | None = None) -> TrainJob:
        """The training of a setting. The spec's own is the model's own training.

        Raises:
            ValidationError: the values do not go together.
        """
        base = replace(self.base, cluster=self._cluster())
        if proposal.own and seed is None:
            return self._spread(base)
        spec = with_values(self.spec, proposal.values)
        training = spec.training
        if seed is not None:
            training = training.model_copy(update={"seed": seed})
        job = replace(base, model=spec.model, training=training, salt=self.name)
        if proposal.part is not None:
            job = self._part(job, proposal.number, proposal.part)
        return self._spread(job)

    def _part(self, job: TrainJob, number: int, part: TrainingPart) -> TrainJob:
        """A round of a member: its share of the epochs, with rows in an order of their own.

        The settings are constant within a round, which rises to its learning rate where the weights
        are fresh.
        """
        training, rounds = job.training, self.search.rounds or 1
        share = {
            "epochs": training.epochs // rounds + (part.round < training.epochs % rounds),
            "seed": training.seed + part.round,
            "schedule": "constant",
            "warmup": min(0.5, training.warmup * rounds) if part.round == 0 else 0.0,
        }
        return replace(
            job,
            training=training.model_copy(update=share),
            init=part.weights or job.init,
            salt=f"{self.name} {number}",
        )

    def _cluster(self) -> ClusterSpec:
        """The machines that the spec asks for, in the queue of the search."""
        asked = {"queue": self.search.queue, "queue_priority": self.search.queue_priority}
        named = {name: value for name, value in asked.items() if value}
        return self.base.cluster.model_copy(update=named)

    def _spread(self, job: TrainJob) -> TrainJob:
        """On as many processes as a trial has; no number depends on it."""
        if self.processes is None or isinstance(job.model, Boosted):
            return job
        training, few = job.training, min(job.training.processes, self.processes)
        spread: dict[str, object] = {"processes": few, "parallel": training.parallel.over(few)}
        if few == 1:
            spread["strategy"] = "replicate"
        return replace(job, training=training.model_copy(update=spread))
