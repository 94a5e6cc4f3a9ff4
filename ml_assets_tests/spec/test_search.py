"""search.yaml: every mistake with its line and remedy; what a space holds; values into a spec."""

from pathlib import Path

import pytest

from ml_assets.errors import SpecError
from ml_assets.spec.load import check_spec, load_spec
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.search import check_search, load_search, with_values
from ml_assets.spec.search_parameter import Parameter
from ml_assets.spec.training import LightGbm
from ml_assets_tests.worlds import irises

LEARNING_RATE = "training.learning_rate: {kind: log_float, low: 0.001, high: 0.1}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("spec")
    irises.plant(root / "pipelines", root / "sources")
    return root / "pipelines" / "irises"


@pytest.fixture(scope="module")
def spec(folder: Path) -> PipelineSpec:
    return load_spec(folder)


def said(folder: Path, spec: PipelineSpec, *lines: str, top: str = "trials: 4") -> str:
    """The mistakes of a search with these parameters."""
    keys = top.removeprefix("{").removesuffix("}").split(", ") if top.startswith("{") else [top]
    head = "".join(f"  {key}\n" for key in keys)
    text = f"search:\n{head}  parameters:\n" + "".join(f"    {line}\n" for line in lines)
    (folder / "search.yaml").write_text(text)
    _, mistakes = check_search(folder, spec)
    return "\n".join(str(one) for one in mistakes)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("training.learning_rat: {kind: float, low: 0.1, high: 0.2}", "Did you mean"),
        ("model.dropout: {kind: float, low: 0.0, high: 2.0}", "less than 1"),
        (
            "model.dropout: {kind: float, low: 0.5, high: 0.1}",
            "write low: 0.1, high: 0.5",
        ),
        ("model.dropout: {kind: float, low: 0.5, high: 0.1}", "dropout.low is 0.5\n"),
        ("model.dropout: {kind: log_float, low: 0.0, high: 0.1}", "must begin above 0"),
        ("model.width: {kind: int, low: 8.5, high: 16}", "whole numbers"),
        ("model.width: {kind: float, low: 8.5, high: 16}", "must be a whole number"),
        ("model.width: {kind: choice, values: [8]}", "two values or more"),
        ("model.width: {kind: choice, values: [8, 8]}", "is there twice"),
        ("model.width: {kind: choice, values: [8, -1]}", "greater than 0"),
        ("model.width: {low: 8, high: 16}", "state the values"),
        ("model.width: {kind: int, low: 8}", "needs both 'low' and 'high'"),
        ("model.width: {role: fixed, low: 8, high: 9}", "one 'value'"),
        ("model.width: {role: fixed}", "needs its 'value'"),
        ("training.batch_size: {kind: choice, values: [24, 25]}", "multiple of microbatches"),
        ("training.seed: {kind: int, low: 1, high: 4}", "the best seed is luck"),
        ("training.processes: {kind: int, low: 1, high: 4}", "decides no result"),
        ("model.family: {kind: choice, values: [mlp, tabm]}", "over one family"),
        ("gates: {kind: int, low: 1, high: 4}", "no such field"),
    ],
)
def test_a_space_that_cannot_be_is_refused_at_its_line(
    folder: Path, spec: PipelineSpec, line: str, expected: str
) -> None:
    found = said(folder, spec, LEARNING_RATE, line)
    assert expected in found
    assert "search.yaml:5" in found
    assert "    rule:   parameters." in found


@pytest.mark.parametrize(
    ("top", "expected"),
    [
        ("metod: grid", "did you mean 'method'?"),
        ("method: annealing", "use one of"),
        ("method: grid", "a grid needs 'points'"),
        ("budget: {}", "a budget needs"),
        ("then: {method: tpe, after: 16}", "none is left"),
        ("prune: {kind: median, min_share: 1.5}", "less than 1"),
        ("method: population", "a population needs 'rounds'"),
        ("{method: population, rounds: 2, trials: 3}", "has no worst quarter"),
        ("{method: population, rounds: 31}", "31 rounds for 30 epochs"),
        ("{method: population, rounds: 2, adopt: true}", "finds a schedule over its rounds"),
        ("{method: population, rounds: 2, prune: {kind: median}}", "remove 'prune'"),
        ("{method: population, rounds: 2, then: {after: 3}}", "remove 'then'"),
        ("rounds: 3", "rounds are of method: population"),
        ("metric: validation_auc", "no validation_auc of the validation split"),
        ("metric: accuracy", "There are validation_loss, validation_accuracy, validation_brier"),
        ("queue: Low", "not the name of a queue"),
        ("queue_priority: low", "set queue here or in the spec's cluster"),
        ("after_refusals: 2", "counts the trainings of drift.retrain, which the spec does not set"),
        ("after_refusals: 1", "write 2 or more"),
        ("trials: 0", "write 1 or more; without the key it is 16"),
        ("parallel: 0", "write 1 or more"),
        ("seeds: 21", "write 20 or less; without the key it is 3"),
        ("budget: {machine_hours: 0}", "write a number above 0"),
        ("budget: {hours: 2}", "did you mean 'gpu_hours' or 'machine_hours'?"),
    ],
)
def test_how_it_is_searched_is_held_to_its_rules_too(
    folder: Path, spec: PipelineSpec, top: str, expected: str
) -> None:
    found = said(folder, spec, LEARNING_RATE, top=top)
    assert expected in found
    assert "search.yaml:" in found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("model.width: {kind: choice, values: [8, 16]}", "another shape"),
        ("training.epochs: {kind: int, low: 8, high: 16}", "share the epochs out"),
        ("training.warmup: {kind: float, low: 0.1, high: 0.2}", "only the first round has one"),
        ("model.dropout: {kind: float, low: 0.0, high: 0.2, role: scientific}", "role: nuisance"),
    ],
)
def test_what_a_member_cannot_take_over_is_refused(
    folder: Path, spec: PipelineSpec, line: str, expected: str
) -> None:
    top = "{method: population, rounds: 3}"
    assert expected in said(folder, spec, LEARNING_RATE, line, top=top)
    assert not said(folder, spec, LEARNING_RATE, top=top)


def test_trees_are_no_population(folder: Path, spec: PipelineSpec) -> None:
    trees = spec.model_copy(update={"model": LightGbm(family="lightgbm")})
    rate = "model.learning_rate: {kind: log_float, low: 0.01, high: 0.1}"
    found = said(folder, trees, rate, top="{method: population, rounds: 3}")
    assert "trees cannot continue from weights" in found


def test_a_metric_that_the_task_has_is_taken_whatever_is_trained(
    folder: Path, spec: PipelineSpec
) -> None:
    trees = spec.model_copy(update={"model": LightGbm(family="lightgbm")})
    leaves = "model.num_leaves: {kind: int, low: 4, high: 8}"
    for of, space in ((spec, LEARNING_RATE), (trees, leaves)):
        assert not said(folder, of, space, top="metric: validation_accuracy")
        found = said(folder, of, space, top="metric: validation_ndcg")
        assert "There are validation_loss, validation_accuracy, validation_brier" in found


def test_nothing_to_search_is_told(folder: Path, spec: PipelineSpec) -> None:
    found = said(folder, spec, "model.width: {role: fixed, value: 8}")
    assert "there is nothing to search" in found


def test_another_key_at_the_top_is_told(folder: Path, spec: PipelineSpec) -> None:
    (folder / "search.yaml").write_text("search: {parameters: {}}\nstudy: 1\n")
    assert "one key: 'search'" in str(check_search(folder, spec)[1][0])


def test_who_reads_a_wrong_search_is_told_all_of_it(folder: Path, spec: PipelineSpec) -> None:
    said(folder, spec, "model.widht: {kind: int, low: 8, high: 16}")
    with pytest.raises(SpecError, match="1 mistake in"):
        load_search(folder, spec)


def test_a_spec_without_a_search_has_none(folder: Path, spec: PipelineSpec) -> None:
    (folder / "search.yaml").unlink(missing_ok=True)
    assert load_search(folder, spec) is None


def test_a_search_inside_the_spec_is_sent_to_its_file(tmp_path: Path) -> None:
    irises.plant(tmp_path, tmp_path)
    file = tmp_path / "irises" / "defs.yaml"
    file.write_text(file.read_text() + "  search: {trials: 4}\n")
    assert "write it into search.yaml" in str(check_spec(tmp_path / "irises")[1][0])


def test_a_grid_has_both_ends_and_the_steps_of_its_scale() -> None:
    logarithmic = Parameter(kind="log_float", low=0.001, high=0.1, points=3)
    assert logarithmic.grid() == (0.001, 0.01, 0.1)
    assert Parameter(kind="int", low=2, high=5).grid() == (2, 3, 4, 5)
    assert Parameter(kind="float", low=0, high=1, points=3).grid() == (0.0, 0.5, 1.0)


def test_a_value_has_few_digits_and_stays_within_the_ends() -> None:
    one = Parameter(kind="log_float", low=0.00012345678, high=0.1)
    assert one.plain(0.0123456789) == 0.01235
    assert one.plain(0.00012345679) >= 0.00012345678
    assert Parameter(kind="int", low=2, high=5).plain(3.7) == 4


def test_a_space_holds_its_fields_and_no_other(folder: Path, spec: PipelineSpec) -> None:
    said(folder, spec, LEARNING_RATE, "model.width: {kind: choice, values: [8, 16]}")
    search = load_search(folder, spec)
    assert search is not None
    good = {"training.learning_rate": 0.01, "model.width": 8}
    assert search.holds(good)
    for other in (
        {**good, "model.width": 9},
        {**good, "training.learning_rate": 0.2},
        {**good, "training.epochs": 1},
        {"model.width": 8},
        {**good, "model.width": True},
    ):
        assert not search.holds(other)


def test_values_change_their_fields_and_nothing_else(spec: PipelineSpec) -> None:
    changed = with_values(spec, {"training.learning_rate": 0.5, "model.width": 8})
    assert (changed.training.learning_rate, changed.model.width) == (0.5, 8)
    back = {"training.learning_rate": spec.training.learning_rate, "model.width": spec.model.width}
    assert with_values(changed, back) == spec


def test_a_search_that_was_written_down_can_be_read_again(folder: Path, spec: PipelineSpec) -> None:
    said(folder, spec, LEARNING_RATE, "model.width: {role: fixed, value: 8}")
    search = load_search(folder, spec)
    assert search is not None
    assert type(search).model_validate(search.model_dump(mode="json")) == search


def test_mistakes_of_parameters_are_told_all_at_once(folder: Path, spec: PipelineSpec) -> None:
    found = said(
        folder,
        spec,
        "training.rate: {kind: float, low: 0.1, high: 0.2}",
        "model.dropout: {kind: float, low: 0.5, high: 0.1}",
        "model.width: {kind: choice, values: [8, -1]}",
        "training.learning_rate: {kind: float, low: 0.1, high: 0.2}",
        "training.seed: {kind: int, low: 1, high: 4}",
        top="method: grid",
    )
    told = found.split("search.yaml:")
    for line, part in enumerate(("no such field", "reversed", "than 0", "points", "luck"), 4):
        assert any(one.startswith(f"{line}: ") and part in one for one in told), found


def test_mistakes_of_types_are_told_with_those_of_parameters(
    folder: Path, spec: PipelineSpec
) -> None:
    found = said(
        folder,
        spec,
        "model.width: {kind: int, low: low, high: 16}",
        "model.dropout: {kind: float, low: 0.5, high: 0.1}",
        "training.rate: {kind: float, low: 0.1, high: 0.2}",
        top="{trials: 0, metod: grid, metric: accuracy}",
    )
    told = [part.partition(":")[0] for part in found.split("search.yaml:")[1:]]
    assert told == ["2", "3", "4", "6", "7", "8"], found
    for part in (
        "write 1 or more",
        "'method'",
        "There are validation_loss",
        "a number",
        "reversed",
    ):
        assert part in found
    assert "no such field" in found


@pytest.mark.parametrize(
    ("line", "top"),
    [
        ("training.epochs: {role: fixed, value: 8}", "{method: populaton, rounds: 40}"),
        ("training.epochs: {role: fixed, value: 8}", "{trials: 0, then: {after: 20}}"),
        ("training.epochs: {role: fixed, value: [8]}", "queue_priority: low, queue: Low"),
    ],
)
def test_nothing_is_told_that_another_mistake_may_be_the_cause_of(
    folder: Path, spec: PipelineSpec, line: str, top: str
) -> None:
    found = said(folder, spec, line, top=top)
    assert found.count("rule:") == 1, found


def test_a_form_that_is_too_short_is_told_its_keys(folder: Path, spec: PipelineSpec) -> None:
    found = said(folder, spec, LEARNING_RATE, top="{prune: hyperband, then: tpe}")
    assert "the keys are kind, min_share" in found
    assert "the keys are after, method" in found


def test_a_budget_of_gpus_that_no_trial_uses_is_refused(folder: Path, spec: PipelineSpec) -> None:
    assert "write machine_hours" in said(folder, spec, LEARNING_RATE, top="budget: {gpu_hours: 1}")
