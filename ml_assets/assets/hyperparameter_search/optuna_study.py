"""Optuna through ask and tell: which setting is tried next, and whether a running one is hopeless.

Its storage remembers what was asked, so a study continues wherever it was killed. It is a memory
and no evidence: everything read from it is checked against the space and the sessions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Literal

from ml_assets.assets.hyperparameter_search.study_memory import opened
from ml_assets.errors import StorageError
from ml_assets.spec.base import digest_of
from ml_assets.spec.search import Method, Prune, SearchSpec
from ml_assets.spec.search_parameter import Parameter, Value, Values
from ml_assets.spec.training_program import Ref

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.distributions import BaseDistribution
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler

Ended = Literal["finished", "pruned", "failed"]
FULL = 100
"""A whole training, in the unit that pruning counts in: percent of it."""
_OWN, _END, _NONE = "own", "ended", "none"
"""Attributes of a proposal: it is the spec's own; how it ended; it is none, for it was tried before
or cannot be."""
_MOST_KNOWN = 25
"""Proposals in a row that were all tried before: the space is as good as exhausted."""


@dataclass(frozen=True)
class TrainingPart:
    """Says which part of a training a member of a population takes."""

    round: int
    """From 0."""
    parent: int | None = None
    """The number of the trial that it goes on from."""
    weights: Ref | None = None
    """The model that this one came to."""


@dataclass(frozen=True)
class Proposal:
    """A setting to train by."""

    number: int
    values: Values
    """Every field of the space, the fixed ones too."""
    own: bool = False
    """It is the spec's own setting: it is never pruned."""
    ended: Ended | None = None
    """How its training ended, as far as the storage remembers it; None: it goes on."""
    told: bool = False
    """Whether the sampler knows how it ended."""
    part: TrainingPart | None = None
    """Its part of a population; None: it is trained whole."""


class Sampler:
    """The proposals of one study, in a storage that survives this process.

    Args:
        search: what is searched, and how.
        own: the spec's own setting; it is the first proposal where it lies in the space.
        study: the name of the study.
        place: the folder of journals, or the URL of a database.
        fits: whether the spec takes values of the space together; it takes each of them alone.

    Raises:
        StorageError: the storage holds proposals of another space.
    """

    def __init__(
        self,
        search: SearchSpec,
        own: Values,
        study: str,
        place: str,
        fits: Callable[[Values], bool] = lambda _: True,
    ) -> None:
        self._search = search
        self._fits = fits
        self._distributions = {
            path: distribution(one, grid=search.method == "grid")
            for path, one in search.searched.items()
        }
        self._study: Study = opened(search, pruner(search.prune), study, place)
        self._trials: dict[int, Trial] = {}
        self._reported: dict[int, set[int]] = {}
        self._tried: dict[str, int] = {}
        self._own: int | None = None
        """The number of the spec's own setting, where it is one of the proposals."""
        self._known = [self._remembered(trial.number) for trial in self._study.get_trials(False)]
        if not self._known and search.proposes(own):
            asked = {path: own[path] for path in self._distributions}
            self._study.enqueue_trial(asked, user_attrs={_OWN: True})

    @property
    def known(self) -> tuple[Proposal, ...]:
        """Return what was proposed before this process came, in the order of the numbers."""
        return tuple(one for one in self._known if one is not None)

    @property
    def proposed(self) -> int:
        """Distinct settings so far, without the spec's own."""
        return len(self._tried) - (self._own is not None)

    def ask(self) -> Proposal | None:
        """The next setting that was never tried; None: the space has none left."""
        most = self._search.size if self._search.method == "grid" else None
        for _ in range(_MOST_KNOWN):
            if most is not None and len(self._tried) >= most:
                return None
            self._study.sampler = self._sampler()
            trial = self._study.ask(self._distributions)
            found = self._proposal(trial)
            key = digest_of(dict(found.values))
            if key not in self._tried and (found.own or self._fits(found.values)):
                self._tried[key] = trial.number
                self._trials[trial.number] = trial
                if found.own:
                    self._own = trial.number
                return found
            trial.set_user_attr(_NONE, True)
            self._told(trial.number, "failed", None)
        return None

    def reports(self, number: int, share: float, loss: float) -> bool:
        """Note how a running trial was judged, and return whether it has no prospect.

        Args:
            share: of its training, above 0 and at most 1.
        """
        trial, step = self._trials[number], max(1, round(share * FULL))
        reported = self._reported.setdefault(number, set())
        if step not in reported and isfinite(loss):
            reported.add(step)
            trial.report(loss, step)
        return number != self._own and step < FULL and trial.should_prune()

    def ends(self, number: int, how: Ended) -> None:
        """Remember how a trial ends before it is told to: a kill in between changes nothing."""
        self._trials[number].set_user_attr(_END, how)

    def tell(self, number: int, how: Ended, loss: float | None) -> None:
        """A trial has ended.

        Args:
            loss: of one that finished.
        """
        self.ends(number, how)
        self._told(number, how, loss)

    def importances(self) -> dict[str, float]:
        """Path -> its share of what the loss varies by, of the trials that finished.

        Empty where they are too few, or all alike.
        """
        from optuna.importance import FanovaImportanceEvaluator, get_param_importances
        from optuna.trial import TrialState

        done = self._study.get_trials(False, states=[TrialState.COMPLETE])
        if len(done) < 4 or len({trial.value for trial in done}) < 2:
            return {}
        # deeper trees take many times as long with a thousand trials, and say the same
        seen = FanovaImportanceEvaluator(n_trees=32, max_depth=8, seed=self._search.seed)
        return dict(get_param_importances(self._study, evaluator=seen))

    def _told(self, number: int, how: Ended, loss: float | None) -> None:
        from optuna.samplers import RandomSampler
        from optuna.trial import TrialState

        states = {
            "finished": TrialState.COMPLETE,
            "pruned": TrialState.PRUNED,
            "failed": TrialState.FAIL,
        }
        self._study.sampler = RandomSampler(seed=0)  # a grid would stop a loop that is not Optuna's
        if how == "finished" and loss is not None:
            self._study.tell(number, loss)
        else:
            self._study.tell(number, state=states[how])

    def _remembered(self, number: int) -> Proposal | None:
        """A proposal of before; None: it is none, or not yet."""
        from optuna import Trial
        from optuna.trial import TrialState

        frozen = self._study.get_trials(False)[number]
        if frozen.user_attrs.get(_NONE) or frozen.state is TrialState.WAITING:
            return None  # what waits is proposed when it is asked for
        if not frozen.state.is_finished():
            trial = Trial(self._study, frozen._trial_id)
            for path, one in self._distributions.items():  # it may have died while it was drawn
                trial._suggest(path, one)
            self._trials[number] = trial
            self._reported[number] = set(frozen.intermediate_values)
            frozen = self._study.get_trials(False)[number]
        if not self._search.holds({**self._search.fixed, **frozen.params}):
            raise self._of_another_space(number)
        found = self._values(frozen.params)
        if self._tried.setdefault(digest_of(found), number) != number:
            return None  # it died before it was marked as one that was tried before
        ended = frozen.user_attrs.get(_END)
        if ended not in ("finished", "pruned", "failed"):
            ended = None
        own = bool(frozen.user_attrs.get(_OWN))
        self._own = number if own else self._own
        return Proposal(number, found, own, ended, frozen.state.is_finished())

    def _of_another_space(self, number: int) -> StorageError:
        return StorageError(
            f"The stored trial {number} of study {self._study.study_name} has values that "
            "search.yaml does not allow: something else wrote there. Delete the study's journal "
            "(or its rows in the database of ML_ASSETS_STUDIES): finished trainings are found "
            "again."
        )

    def _proposal(self, trial: "Trial") -> Proposal:
        return Proposal(trial.number, self._values(trial.params), bool(trial.user_attrs.get(_OWN)))

    def _values(self, drawn: Values) -> dict[str, Value]:
        """The values of a setting, from what Optuna drew for the fields that are searched."""
        every = self._search.parameters.items()
        return {path: one.tried(drawn.get(path, one.value)) for path, one in every}

    def _sampler(self) -> "BaseSampler":
        """The sampler of the next proposal: of its own seed, so that a restart repeats nothing."""
        search, number = self._search, len(self._study.get_trials(False))
        then = search.then
        method: Method = search.method
        if then is not None and self.proposed >= then.after:
            method = then.method
        return sampler(method, search, int(digest_of([search.seed, number])[:8], 16))


def sampler(method: Method, search: SearchSpec, seed: int) -> "BaseSampler":
    """Optuna's sampler of that name.

    Args:
        seed: of this one proposal; a sequence has the seed of the search.
    """
    from optuna.samplers import GridSampler, QMCSampler, RandomSampler, TPESampler

    match method:
        case "grid":
            # its points are numbered by a shuffle, which is to be the same one each time
            points = {path: one.grid() for path, one in search.searched.items()}
            return GridSampler(points, seed=search.seed)
        case "random":
            return RandomSampler(seed=seed)
        case "quasi_random":
            from warnings import catch_warnings, simplefilter

            with catch_warnings():
                simplefilter("ignore")  # that Optuna calls it experimental
                return QMCSampler(
                    scramble=True,
                    seed=search.seed,
                    independent_sampler=RandomSampler(seed=seed),
                    warn_independent_sampling=False,
                )
        case "population":
            raise ValueError("a population proposes its own settings: see population.py")
        case "tpe":
            explored = search.then.after if search.then else 0
            startup = 1 if explored else min(10, max(1, search.trials // 4))
            return TPESampler(seed=seed, multivariate=True, n_startup_trials=startup)


def pruner(prune: Prune | None) -> "BasePruner":
    """Optuna's pruner of that name; shares of a training are counted in percent."""
    from optuna.pruners import (
        HyperbandPruner,
        MedianPruner,
        NopPruner,
        SuccessiveHalvingPruner,
    )

    if prune is None:
        return NopPruner()
    least = max(1, round(prune.min_share * FULL))
    match prune.kind:
        case "successive_halving":
            return SuccessiveHalvingPruner(min_resource=least, reduction_factor=3)
        case "hyperband":
            return HyperbandPruner(min_resource=least, max_resource=FULL, reduction_factor=3)
        case "median":
            return MedianPruner(n_startup_trials=4, n_warmup_steps=least - 1)


def distribution(one: Parameter, *, grid: bool = False) -> "BaseDistribution":
    """Return what Optuna draws from."""
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if grid or one.kind == "choice":
        return CategoricalDistribution(one.grid())
    low, high = one.bounds
    if one.whole:
        return IntDistribution(int(low), int(high), log=one.log)
    return FloatDistribution(low, high, log=one.log)
