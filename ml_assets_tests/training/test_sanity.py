"""The sanity suite: healthy networks pass on every task; a planted bug trips its check only."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from ml_assets.spec.base import canonical_json
from ml_assets.spec.parallel import Parallel
from ml_assets.spec.pipeline import LabelSpec
from ml_assets.spec.sanity import alone
from ml_assets.spec.training import LightGbm, Mlp, ModelSpec, Module, TabM, TrainingSpec
from ml_assets.spec.training_program import Ref, Reports, SanityRequest, SanityResult, World
from ml_assets.training.events import EventWriter
from ml_assets.training.measure_pace import pace_alone
from ml_assets.training.rows.arrays import open_set
from ml_assets.training.sanity import learning
from ml_assets.training.sanity.subject import Subject
from ml_assets.training.sanity.suite import admit, examine, sanity
from ml_assets.training.sanity.untrained import no_batch_leak
from ml_assets.training.stop import BadRequest
from ml_assets_tests.training.conftest import (
    FEATURES,
    LABEL,
    SPEC,
    frame,
    ranking_set,
    regression_set,
)
from ml_assets_tests.training.test_program import program
from ml_assets_tests.worlds.shards import write_shards

TABM = TabM(family="tabm", width=16, depth=2, members=4)
MLP = Mlp(family="mlp", width=16, depth=2)
Split = Callable[[pl.LazyFrame], pl.LazyFrame]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """As the program has it: more would wait for each other on these few rows."""
    torch.set_num_threads(1)


def shards(folder: Path, change: Split, label: LabelSpec = LABEL) -> Ref:
    splits = {name: change(frame(rows, first)) for name, rows, first in SPLITS}
    return write_shards(splits, FEATURES, label, folder)  # pyright: ignore[reportArgumentType]


SPLITS = [("train", 1000, 0), ("validation", 600, 2000), ("holdout", 9, 5000)]


def species(folder: Path) -> Ref:
    """Three classes, the more of the third the larger x is."""
    grade = pl.col("x").gt(-0.5).cast(pl.Int64) + pl.col("x").gt(0.8).cast(pl.Int64)
    named = grade.replace_strict({0: "a", 1: "b", 2: "c"}, return_dtype=pl.String).alias("y")
    label = LabelSpec(column="y", task="multiclass", classes=("a", "b", "c"))
    return shards(folder, lambda of: of.with_columns(named), label)


SETS: dict[str, Callable[[Path], Ref]] = {
    "binary": lambda folder: shards(folder, lambda of: of),
    "multiclass": species,
    "regression": regression_set,
    "ranking": ranking_set,
}


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ref]:
    return {task: make(tmp_path_factory.mktemp(task)) for task, make in SETS.items()}


def request(
    data: Ref, model: ModelSpec = TABM, spec: TrainingSpec = SPEC, folder: Path = Path()
) -> SanityRequest:
    return SanityRequest(
        session="sanity",
        attempt=1,
        model=model,
        training=spec,
        data=data,
        output=Reports(events=str(folder / "events.jsonl"), result=str(folder / "result.json")),
        world=World(),
    )


def told(subject: Subject) -> dict[str, str]:
    """The checks that did not pass."""
    return {c.name: c.outcome for c in examine(subject) if c.outcome != "passed"}


@pytest.mark.parametrize("model", [TABM, MLP], ids=lambda model: model.family)
@pytest.mark.parametrize("task", [*SETS])
def test_a_healthy_network_passes_every_check_of_its_task(
    sets: dict[str, Ref], task: str, model: ModelSpec
) -> None:
    checks = examine(admit(request(sets[task], model)))
    assert [c for c in checks if c.outcome != "passed"] == []
    assert len(checks) == (5 if task == "ranking" else 6)


@pytest.mark.parametrize("optimizer", ["sgd", "nadam", "adafactor"])
@pytest.mark.parametrize("task", [*SETS])
def test_every_optimizer_learns_a_batch_by_heart_at_the_checks_own_rate(
    sets: dict[str, Ref], task: str, optimizer: str
) -> None:
    changed = {"optimizer": optimizer, "strategy": "replicate", "learning_rate": 1e-6}
    asked = request(sets[task], MLP, SPEC.model_copy(update=changed))
    assert told(admit(asked)) == {}


@pytest.mark.parametrize(
    ("task", "changed"),
    [
        ("binary", {"loss": "focal", "positive_weight": 20.0}),
        ("multiclass", {"loss": "focal", "class_weights": (1.0, 2.0, 30.0)}),
    ],
)
def test_weights_and_a_focal_loss_have_a_theory_too(
    sets: dict[str, Ref], task: str, changed: dict[str, Any]
) -> None:
    subject = admit(request(sets[task], MLP, SPEC.model_copy(update=changed)))
    assert told(subject) == {}


# --- each bug trips its check, and no other -------------------------------------------------------


def on_hidden(bug: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Subject], None]:
    """A bug in the forward pass: what the first layer says is changed."""

    def plant(subject: Subject) -> None:
        layer = subject.network.layers[0]
        subject.network.layers[0] = Bent(layer, bug)

    return plant


class Bent(torch.nn.Module):
    def __init__(self, layer: torch.nn.Module, bug: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layer, self.bug = layer, bug

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bug(self.layer(x))


class MeanInTraining(torch.nn.Module):
    """As batch normalization: rows meet only while it trains."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0) if self.training else x


def batch_normalized(subject: Subject) -> None:
    layer = subject.network.layers[0]
    subject.network.layers[0] = torch.nn.Sequential(layer, MeanInTraining())


def wrong_bias(subject: Subject) -> None:
    subject.network.output_bias.data += 1.0


def no_scale(subject: Subject) -> None:
    """Weights that are drawn without a thought of how many there are."""
    output = subject.network.output
    weight = output if isinstance(output, torch.nn.Parameter) else output.weight
    weight.data *= 40


def frozen(subject: Subject) -> None:
    subject.network.layers[0].weight.requires_grad_(False)


class Bypassed(torch.nn.Module):
    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def bypassed(subject: Subject) -> None:
    subject.network.layers[1] = Bypassed(subject.network.layers[1])


BUGS: list[tuple[str, Callable[[Subject], None], str]] = [
    ("output_bias", wrong_bias, "the base rate"),
    ("loss_at_init", no_scale, "the entropy of the labels"),
    ("no_batch_leak", on_hidden(lambda x: x - x.mean(0, keepdim=True)), "as it scores|as it is"),
    ("no_batch_leak", on_hidden(lambda x: x + x.roll(1, 0)), "dimension 0"),
    ("no_batch_leak", batch_normalized, "(as it is trained, 16 rows)"),
    ("gradients", frozen, "layers.0.weight (frozen)"),
    ("gradients", bypassed, "layers.1.layer.weight (not used)"),
]


@pytest.mark.parametrize("model", [TABM, MLP], ids=lambda model: model.family)
@pytest.mark.parametrize(("check", "plant", "said"), BUGS)
def test_a_bug_of_the_network_trips_its_check_and_no_other(
    sets: dict[str, Ref], model: ModelSpec, check: str, plant: Callable[[Subject], None], said: str
) -> None:
    subject = admit(request(sets["binary"], model))
    plant(subject)
    checks = {c.name: c for c in examine(subject)}
    assert {n: c.reason for n, c in checks.items() if c.outcome != "passed"} == {
        check: checks[check].reason
    }
    assert any(part in checks[check].reason for part in said.split("|"))


@pytest.mark.parametrize("least", [100, 5000])
def test_a_network_of_a_teams_own_is_asked_with_as_many_rows_as_it_meets(
    sets: dict[str, Ref], least: int
) -> None:
    subject = admit(request(sets["binary"], MLP))
    on_hidden(lambda x: x + x.roll(1, 0) if len(x) > least else x)(subject)
    assert no_batch_leak(subject).outcome == "passed"  # of ours it is known
    own = replace(subject, model=Module(family="module", module="network.py:build"))
    found = no_batch_leak(own)
    assert found.outcome == "failed"
    assert "when other rows are exchanged (as it is trained" in found.reason


def test_a_gradient_that_is_no_number_is_named_with_its_parameter(sets: dict[str, Ref]) -> None:
    subject = admit(request(sets["binary"], MLP))
    on_hidden(lambda x: x + (0 * x).sqrt())(subject)
    found = {c.name: c for c in examine(subject)}["gradients"]
    assert found.outcome == "failed"
    assert "layers.0.layer.weight (not finite)" in found.reason


def only_the_bias(network: torch.nn.Module, _: TrainingSpec) -> torch.optim.Optimizer:
    return torch.optim.AdamW([network.output_bias])  # pyright: ignore[reportArgumentType]


def test_an_optimizer_that_lacks_the_weights_cannot_learn_a_batch_by_heart(
    sets: dict[str, Ref], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "make_optimizer", only_the_bias)
    subject = admit(request(sets["binary"]))
    assert [name for name, outcome in told(subject).items() if outcome == "failed"] == [
        "overfits_one_batch"
    ]


def test_a_narrow_table_is_learned_by_heart_on_more_than_a_few_rows_or_not_judged(
    tmp_path: Path,
) -> None:
    def narrow(of: pl.LazyFrame) -> pl.LazyFrame:
        return of.with_columns(z=pl.lit(0.0), c=pl.lit("a"))

    data = shards(tmp_path / "narrow", narrow)
    (found,) = [c for c in examine(admit(request(data, MLP))) if c.name == "overfits_one_batch"]
    assert (found.outcome, "on the same 8 rows" in found.reason) == ("passed", True), found
    noise = shards(tmp_path / "noise", lambda of: shuffled(narrow(of)))
    tiny = Mlp(family="mlp", width=4, depth=1)
    (found,) = [c for c in examine(admit(request(noise, tiny))) if c.name == "overfits_one_batch"]
    assert found.outcome == "warned"
    assert found.reason.startswith("This cannot be judged: 2 rows are learned by heart")


def shuffled(of: pl.LazyFrame) -> pl.LazyFrame:
    return of.with_columns(pl.col("y").shuffle(seed=1))


def zeroed(of: pl.LazyFrame) -> pl.LazyFrame:
    return of.with_columns(x=pl.lit(0.0), z=pl.lit(0.0), c=pl.lit("a"))


@pytest.mark.parametrize(
    ("change", "outcomes"), [(shuffled, {"failed", "warned"}), (zeroed, {"failed"})]
)
def test_inputs_that_do_not_belong_to_the_labels_are_no_better_than_zeros(
    tmp_path: Path, change: Split, outcomes: set[str]
) -> None:
    found = told(admit(request(shards(tmp_path, change))))
    assert found.keys() == {"beats_zero_inputs"}
    assert found["beats_zero_inputs"] in outcomes


# --- the verb -------------------------------------------------------------------------------------


def test_the_verb_writes_the_checks_and_says_the_same_again(
    sets: dict[str, Ref], tmp_path: Path
) -> None:
    file = tmp_path / "request.json"
    file.write_bytes(canonical_json(request(sets["regression"], MLP, folder=tmp_path)))
    assert program("sanity", file) == 0
    result = SanityResult.model_validate_json((tmp_path / "result.json").read_bytes())
    assert result.checks == examine(admit(request(sets["regression"], MLP)))
    assert not result.failed
    assert result.alone is not None and result.alone.rows_per_second > 0


@pytest.mark.parametrize("changed", [{"compile": True}, {"learning_rate": 1.0, "clip_norm": 1e30}])
def test_one_process_by_itself_is_not_measured_where_its_steps_say_nothing(
    sets: dict[str, Ref], changed: dict[str, Any], tmp_path: Path
) -> None:
    spec = SPEC.model_copy(update={**changed, "optimizer": "sgd", "warmup": 0.0})
    asked = request(sets["regression"], MLP, spec, folder=tmp_path)
    assert pace_alone(asked, *open_set(asked.data, asked.splits)) is None


def test_one_process_by_itself_takes_of_a_step_what_each_of_all_takes() -> None:
    whole = TrainingSpec(batch_size=240, microbatches=24, processes=5, strategy="shard")
    one = alone(whole)
    assert (one.batch_size, one.microbatches, one.processes) == (50, 5, 1)
    assert one.strategy == "replicate"
    axes = whole.model_copy(update={"processes": 4, "parallel": Parallel(tensor=2)})
    assert (alone(axes).batch_size, alone(axes).parallel) == (120, Parallel())


def test_boosted_trees_have_no_checks(sets: dict[str, Ref], tmp_path: Path) -> None:
    trees = request(sets["binary"], LightGbm(family="lightgbm"), folder=tmp_path)
    events = EventWriter(tmp_path / "events.jsonl", "sanity", 1, rank=0)
    with pytest.raises(BadRequest, match="Boosted trees have no sanity checks"):
        sanity(trees, events)
