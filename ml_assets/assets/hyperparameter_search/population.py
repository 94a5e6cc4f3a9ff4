"""Population-based training (Jaderberg et al., 2017): trials that take over from each other.

The members of a population train in parallel rounds, each round at constant settings. After a round
the worst quarter takes over the weights and the settings of the best quarter, moved a little. The
result is a schedule: the settings of each round, on the way to the best. Only the sessions are
remembered: the next round follows from the seed and from the results of the round before, so a
study that is killed continues by asking for the same trainings again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from ml_assets.assets.hyperparameter_search.optuna_study import Proposal, TrainingPart
from ml_assets.assets.hyperparameter_search.study_advice import place, unscaled
from ml_assets.spec.base import digest_of
from ml_assets.spec.search import SearchSpec
from ml_assets.spec.search_parameter import Parameter, Value, Values
from ml_assets.spec.study_record import Trial
from ml_assets.spec.training_program import Ref

_AWAY = 0.1
"""How far a setting is moved: a tenth of its range, on the scale that it is searched by."""
_ANEW = 0.25
"""How often one is drawn from the whole range instead."""
_DRAWS = 25
"""Draws until settings are found that the spec takes together."""


@dataclass(frozen=True)
class Population:
    """The proposals of a study by population.

    Args:
        own: the spec's own setting: the first member begins with it, where the space holds it.
        fits: whether the spec takes values of the space together.
    """

    search: SearchSpec
    own: Values
    fits: Callable[[Values], bool] = lambda _: True

    def first(self) -> list[Proposal]:
        """The first round: settings from the whole space."""
        return [self._begun(member) for member in range(self.search.trials)]

    def following(
        self, number: int, before: Sequence[Trial], weights: Mapping[int, Ref]
    ) -> list[Proposal]:
        """A later round.

        Args:
            number: of the round, from 1.
            before: the trials of the round before, in the order of their members; one finished.
            weights: the number of each that finished -> the model that it came to.
        """
        ranked = sorted(before, key=lambda one: (one.number not in weights, one.loss or 0.0))
        members = self.search.trials
        quarter = max(1, members // 4)
        lost = sum(one.number not in weights for one in before)
        behind = {one.number for one in ranked[members - max(quarter, lost) :]}
        ahead = ranked[: min(quarter, members - len(behind)) or 1]
        found: list[Proposal] = []
        for member, one in enumerate(before):
            draw, values = self._draw(number, member), dict(one.values)
            if one.number in behind:
                one = draw.choice(ahead)
                values = self._moved(one.values, draw)
            part = TrainingPart(number, one.number, weights[one.number])
            found.append(Proposal(number * members + member, values, part=part))
        return found

    def _begun(self, member: int) -> Proposal:
        if member == 0 and self.search.holds(self.own):
            return Proposal(0, dict(self.own), part=TrainingPart(0))
        draw = self._draw(0, member)
        values = self._first_that_fits(lambda _, one: _drawn(one, draw))
        return Proposal(member, values or dict(self.own), part=TrainingPart(0))

    def _moved(self, values: Values, draw: Random) -> dict[str, Value]:
        """Settings near those of another member; these themselves where the spec takes no other."""
        found = self._first_that_fits(lambda path, one: _near(one, values[path], draw))
        return found or dict(values)

    def _first_that_fits(self, value: Callable[[str, Parameter], Value]) -> dict[str, Value] | None:
        every = self.search.parameters.items()
        made = ({path: value(path, one) for path, one in every} for _ in range(_DRAWS))
        return next((values for values in made if self.fits(values)), None)

    def _draw(self, number: int, member: int) -> Random:
        return Random(digest_of([self.search.seed, number, member]))


def _drawn(one: Parameter, draw: Random) -> Value:
    if one.kind is None:
        return one.value
    if one.kind == "choice":
        return draw.choice(one.values)
    return one.plain(unscaled(one, draw.random()))


def _near(one: Parameter, value: Value, draw: Random) -> Value:
    if draw.random() < _ANEW:
        return _drawn(one, draw)
    if one.kind is None or one.kind == "choice":
        return value
    at = place(one, value) + draw.choice((-_AWAY, _AWAY))
    return one.plain(unscaled(one, min(1.0, max(0.0, at))))
