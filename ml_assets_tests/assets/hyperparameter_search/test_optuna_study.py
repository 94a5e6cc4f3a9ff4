"""Proposals: known optima, exhaustive grids, the same seed, memories that others wrote into."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ml_assets.assets.hyperparameter_search.optuna_study import Sampler, pruner
from ml_assets.assets.hyperparameter_search.study_memory import held
from ml_assets.errors import StorageError
from ml_assets.spec.search import Prune, SearchSpec
from ml_assets.spec.search_parameter import Values

X, Y = "training.learning_rate", "model.dropout"
OWN = {X: 0.5, Y: 0.5}


def search(method: str, trials: int, **more: object) -> SearchSpec:
    """A unit square: a range of magnitudes and a plain one."""
    points = {"points": 6} if method == "grid" else {}
    return SearchSpec.model_validate(
        {
            "method": method,
            "trials": trials,
            "parameters": {
                X: {"kind": "log_float", "low": 0.01, "high": 1.0, **points},
                Y: {"kind": "float", "low": 0.0, "high": 1.0, **points},
            },
            **more,
        }
    )


def bowl(values: Values) -> float:
    """Zero at learning_rate 0.1, dropout 0.4."""
    from math import log10

    x, y = values[X], values[Y]
    assert isinstance(x, float) and isinstance(y, float)
    return (log10(x) + 1) ** 2 + (y - 0.4) ** 2


def asked(
    by: SearchSpec, folder: Path, loss: Callable[[Values], float] = bowl, most: int = 1000
) -> list[Values]:
    """What a study of one at a time tries, the spec's own first."""
    sampler = Sampler(by, OWN, "study", str(folder))
    found: list[Values] = []
    while sampler.proposed < min(by.trials, most):
        proposal = sampler.ask()
        if proposal is None:
            break
        found.append(proposal.values)
        sampler.tell(proposal.number, "finished", loss(proposal.values))
    return found


@pytest.mark.parametrize(
    ("method", "trials", "more"),
    [
        ("tpe", 60, {}),
        ("quasi_random", 48, {"then": {"method": "tpe", "after": 16}}),
    ],
)
def test_what_learns_from_its_trials_finds_a_known_optimum_within_them(
    tmp_path: Path, method: str, trials: int, more: dict[str, object]
) -> None:
    assert min(map(bowl, asked(search(method, trials, **more), tmp_path))) < 0.01


def test_a_grid_is_tried_whole_and_nothing_twice(tmp_path: Path) -> None:
    by = search("grid", 1000)
    found = asked(by, tmp_path)  # the spec's own lies off the grid
    wanted = {(x, y) for x in by.parameters[X].grid() for y in by.parameters[Y].grid()}
    assert {(one[X], one[Y]) for one in found} == wanted
    assert len(found) == len(wanted) == 36


@pytest.mark.parametrize("method", ["random", "quasi_random", "tpe"])
def test_the_same_seed_tries_the_same_and_another_one_does_not(tmp_path: Path, method: str) -> None:
    first = asked(search(method, 8), tmp_path / "a")
    assert asked(search(method, 8), tmp_path / "b") == first
    assert asked(search(method, 8, seed=1), tmp_path / "c") != first


@pytest.mark.parametrize("method", ["random", "quasi_random", "tpe"])
def test_a_study_that_stops_between_any_two_trials_goes_on_with_the_same(
    tmp_path: Path, method: str
) -> None:
    by = search(method, 8)
    for most in range(1, 9):  # another process each time
        asked(by, tmp_path / "stopped", most=most)
    in_one_go = asked(by, tmp_path / "whole")
    known = Sampler(by, OWN, "study", str(tmp_path / "stopped")).known
    assert [one.values for one in known] == in_one_go


def test_what_was_begun_is_proposed_again_and_nothing_in_its_place(tmp_path: Path) -> None:
    by = search("quasi_random", 4)
    first = Sampler(by, OWN, "study", str(tmp_path))
    begun = [first.ask(), first.ask()]
    second = Sampler(by, OWN, "study", str(tmp_path))
    assert [*second.known] == begun
    assert second.known[0].own
    third = second.ask()
    assert third is not None and third.number == 2


def test_a_space_with_few_settings_ends_when_all_are_tried(tmp_path: Path) -> None:
    by = SearchSpec.model_validate(
        {
            "method": "random",
            "trials": 40,
            "parameters": {"model.width": {"kind": "choice", "values": [8, 16, 32]}},
        }
    )
    sampler = Sampler(by, {"model.width": 16}, "study", str(tmp_path))
    found = []
    while (proposal := sampler.ask()) is not None:
        found.append(proposal.values["model.width"])
        sampler.tell(proposal.number, "finished", 1.0)
    assert sorted(found, key=str) == [16, 32, 8]


def test_values_that_do_not_go_together_are_never_proposed(tmp_path: Path) -> None:
    def fits(values: Values) -> bool:
        return bowl(values) < 0.5

    sampler = Sampler(search("random", 10), OWN, "study", str(tmp_path), fits)
    sampler.ask()  # the spec's own, which is there already
    found = [sampler.ask() for _ in range(10)]
    assert all(one is not None and fits(one.values) for one in found)


def test_a_trial_that_somebody_wrote_into_the_memory_is_refused(tmp_path: Path) -> None:
    import optuna

    by = search("random", 4)
    asked(by, tmp_path)
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.journal"))
    memory = optuna.load_study(study_name="study", storage=optuna.storages.JournalStorage(backend))
    ranges = {
        X: optuna.distributions.FloatDistribution(0.01, 5.0, log=True),
        Y: optuna.distributions.FloatDistribution(0.0, 1.0),
    }
    planted = {X: 4.0, Y: 0.4}
    memory.add_trial(optuna.create_trial(params=planted, distributions=ranges, value=0.0))
    with pytest.raises(StorageError, match="does not allow: something else"):
        Sampler(by, OWN, "study", str(tmp_path))


DAMAGE = {
    "no JSON": lambda whole: whole + b"not json\n",
    "no text": lambda whole: whole + b"\xff\xfe\n",
    "no entry": lambda whole: whole + b"[1]\n",
    "an unknown entry": lambda whole: whole + b'{"op_code": 99, "worker_id": "x"}\n',
    "an unknown range": lambda whole: whole.replace(b"FloatDistribution", b"OtherDistribution"),
}


def test_half_a_line_that_a_killed_process_left_is_dropped(tmp_path: Path) -> None:
    """Optuna would go on in the middle of it, and nobody could read the journal again."""
    by = search("random", 8)
    asked(search("random", 4), tmp_path)
    journal = tmp_path / "study.journal"
    journal.write_bytes(journal.read_bytes()[:-20])
    with held(str(tmp_path), "study"):
        sampler = Sampler(by, OWN, "study", str(tmp_path))
        proposal = sampler.ask()
        assert proposal is not None
        sampler.tell(proposal.number, "finished", 0.5)
    again = Sampler(by, OWN, "study", str(tmp_path))
    assert proposal.number in [one.number for one in again.known]


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_memory_is_one_sentence_with_the_remedy(tmp_path: Path, how: str) -> None:
    by = search("random", 4)
    asked(by, tmp_path)
    journal = tmp_path / "study.journal"
    journal.write_bytes(DAMAGE[how](journal.read_bytes()))
    with pytest.raises(StorageError, match=r"cannot be read .* Delete the study's journal"):
        Sampler(by, OWN, "study", str(tmp_path))


@pytest.mark.parametrize("kind", ["successive_halving", "hyperband", "median"])
def test_a_trial_without_prospect_is_pruned_and_the_specs_own_never(
    tmp_path: Path, kind: str
) -> None:
    by = search("random", 12, prune={"kind": kind, "min_share": 0.25})
    sampler = Sampler(by, OWN, "study", str(tmp_path))
    pruned = list[int]()
    for number in range(12):
        proposal = sampler.ask()
        assert proposal is not None
        loss = 9.0 if number in (0, 11) else 1.0  # the first is the spec's own
        shares = (0.25, 0.5, 0.75, 1.0)
        if any([sampler.reports(proposal.number, share, loss) for share in shares]):
            pruned.append(number)
        sampler.tell(proposal.number, "finished", loss)
    assert 11 in pruned
    assert 0 not in pruned


RECORDED = Path(__file__).parents[3] / "benchmarks" / "results" / "search_curves.json"
"""Trainings to their end, the spec's own first: (share, loss) at each evaluation."""


@pytest.mark.parametrize("kind", ["successive_halving", "hyperband", "median"])
def test_pruning_saves_two_fifths_of_the_steps_and_misses_nothing(kind: str) -> None:
    import optuna

    curves = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    loop = optuna.create_study(pruner=pruner(Prune(kind=kind)), study_name="curves")  # type: ignore[arg-type]
    steps, best = 0, list[float]()
    for curve in curves:
        trial = loop.ask()
        for share, loss in curve:
            steps += 1
            trial.report(loss, max(1, round(100 * share)))
            if share < 1 and curve is not curves[0] and trial.should_prune():
                loop.tell(trial, state=optuna.trial.TrialState.PRUNED)
                break
        else:
            best.append(min(loss for _, loss in curve))
            loop.tell(trial, best[-1])
    assert steps <= 0.6 * sum(map(len, curves))
    assert min(best) == min(loss for curve in curves for _, loss in curve)


def test_a_database_remembers_a_study_as_a_journal_does(tmp_path: Path) -> None:
    by, place = search("quasi_random", 4), f"sqlite:///{tmp_path / 'studies.db'}"
    first = Sampler(by, OWN, "study", place)
    begun = [first.ask(), first.ask()]
    assert [*Sampler(by, OWN, "study", place).known] == begun
