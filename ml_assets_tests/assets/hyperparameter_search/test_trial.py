"""The budget of a study is hard: what runs when it is spent is stopped, saved and counted."""

from itertools import pairwise
from pathlib import Path

import pytest

from ml_assets.assets.hyperparameter_search.trial import usages_of
from ml_assets.launch.events import session_events
from ml_assets.spec.study_record import Study
from ml_assets.spec.training_program.events import Checkpoint, Event, FirstRows, Metrics, Progress
from ml_assets.store.objects import LocalObjects
from ml_assets_tests.worlds import searched
from ml_assets_tests.worlds.world import World

SECONDS = 60
"""Of two trainings side by side: half of it by the clock."""
SEARCH = f"""\
search:
  method: grid
  trials: 2
  parallel: 2
  seeds: 0
  budget: {{machine_hours: {SECONDS / 3600}}}
  parameters:
    training.epochs: {{kind: choice, values: [500000, 500001]}}
"""


def searches(world: World) -> tuple[Study, dict[str, list[Event]]]:
    """The study as it ended, and what its two trials told, which have no end of their own."""
    world.cli("run", "irises", "--search", "--through", "training_set")
    study = Study.model_validate_json(world.cli("models", "search", "irises", "--json"))
    objects = LocalObjects(world.settings.home / "objects")
    stopped = [one for one in study.trials if not one.own]
    assert [one.end for one in stopped] == ["stopped", "stopped"]
    assert "machine hours is spent" in study.ended
    for one in stopped:
        assert {usage.end for usage in usages_of(objects, one.session)} == {"stopped"}
    sessions = {one.session: objects.path("sessions", one.session) for one in stopped}
    return study, {name: [*session_events(folder)] for name, folder in sessions.items()}


def overshot(study: Study, seconds: float) -> float:
    """Seconds of machines beyond the budget; the spec's own setting was trained before."""
    return 3600 * sum(one.machine_hours for one in study.trials if not one.own) - seconds


def is_judged(event: Event) -> bool:
    return isinstance(event, Metrics) and "validation_loss" in event.metrics


def longest_interval(told: list[Event]) -> float:
    """Seconds from one evaluation to the next, or from the begin to the first one."""
    seen = [event for event in told if is_judged(event) or isinstance(event, FirstRows)]
    pairs = [(one, next_) for one, next_ in pairwise(seen) if one.attempt == next_.attempt]
    return max((next_.time - one.time).total_seconds() for one, next_ in pairs)


@pytest.mark.daemon
@pytest.mark.timeout(900)
def test_a_budget_is_kept_to_within_one_evaluation_and_what_ran_is_saved_and_counted(
    tmp_path: Path,
) -> None:
    world = searched.plant(tmp_path, SEARCH)
    spec = world.pipelines / "irises" / "defs.yaml"
    longer = spec.read_text().replace("evaluate_every: 20", "evaluate_every: 800")
    spec.write_text(longer.replace("microbatches: 12", "microbatches: 1"))
    world.cli("run", "irises", "--through", "trained_model")
    study, told = searches(world)
    assert abs(overshot(study, SECONDS)) <= sum(map(longest_interval, told.values()))
    saved: dict[str, int] = {}
    for name, events in told.items():
        judged = max(event.step for event in events if is_judged(event))  # type: ignore[union-attr]
        saved[name] = max(event.step for event in events if isinstance(event, Checkpoint))
        assert saved[name] > judged, "the notice saved what came after the last evaluation"
    account = world.cli("models", "cost", "irises", "--by", "job", "--json")
    assert all(one.session in account for one in study.trials)

    search = world.pipelines / "irises" / "search.yaml"
    search.write_text(SEARCH.replace(str(SECONDS / 3600), str(2 * SECONDS / 3600)))
    more, told = searches(world)
    late = abs(overshot(more, 2 * SECONDS))
    assert late <= sum(map(longest_interval, told.values())), "what was used before counts"
    for name, events in told.items():
        resumed = f"resumed at step {saved[name]} of"
        assert any(isinstance(e, Progress) and resumed in e.message for e in events)
