"""A network of a team's own through the same program: exact, in any world, and never another's."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from ml_assets.spec.augmentation import Augmentation
from ml_assets.spec.base import canonical_json
from ml_assets.spec.network_batch import BatchTensor
from ml_assets.spec.network_code import NetworkCode
from ml_assets.spec.training import Module, TrainingSpec
from ml_assets.spec.training_program import (
    ModelManifest,
    Ref,
    Reports,
    SanityRequest,
    SanityResult,
    ScoreRequest,
    World,
)
from ml_assets.spec.training_program.events import Failed
from ml_assets.training.models.team import Columns, Slices
from ml_assets.training.optimization import make_optimizer
from ml_assets.training.sanity.subject import network_size
from ml_assets.training.sanity.suite import admit
from ml_assets.training.stop import TeamCodeFailed
from ml_assets_tests.training.conftest import SPEC, Attempt, Sessions
from ml_assets_tests.training.networks import CONVOLUTION, MODEL, code
from ml_assets_tests.training.test_boosting import program
from ml_assets_tests.training.test_exactness import left_at, newest

SMALL = SPEC.model_copy(update={"epochs": 2})


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> NetworkCode:
    return code(tmp_path_factory.mktemp("pipeline"))


@pytest.fixture(scope="module")
def convolved(tmp_path_factory: pytest.TempPathFactory, data: Ref, own: NetworkCode) -> Attempt:
    """A training on two processes, sharded, with nothing in its way."""
    attempt = asked(Sessions(tmp_path_factory.mktemp("own"), data), "whole", own)
    assert attempt.run() == 0, attempt.events()[-1]
    return attempt


def asked(sessions: Sessions, name: str, own: NetworkCode, **more) -> Attempt:
    return sessions.attempt(name, **{"model": MODEL, "code": own, "spec": SMALL, **more})


def spec(**changes) -> TrainingSpec:
    return SMALL.model_copy(update=changes)


def said(attempt: Attempt) -> str:
    return next(event.reason for event in attempt.events() if isinstance(event, Failed))


def test_it_learns_and_is_exported_with_the_digest_of_its_code(
    convolved: Attempt, own: NetworkCode
) -> None:
    losses = convolved.validation_losses()
    assert losses[max(losses)] < 0.6 < losses[min(losses)] + 0.1
    folder = Path(convolved.request.output.model)
    manifest = ModelManifest.model_validate_json((folder / "model.json").read_bytes())
    assert manifest.code == own.digest
    assert manifest.model == MODEL
    assert {path.name for path in folder.iterdir()} == {"model.json", "weights.safetensors"}
    assert "network.blocks.0.convolution.weight" in load_file(folder / "weights.safetensors")


def test_a_killed_training_resumes_to_the_same_bits(
    sessions: Sessions, convolved: Attempt, own: NetworkCode
) -> None:
    first = asked(sessions, "killed", own)
    first.kill_after(5)
    resume = newest(Path(first.request.output.checkpoints))
    second = asked(sessions, "killed", own, number=2, resume=resume)
    assert second.run() == 0
    assert second.weights() == convolved.weights()


@pytest.mark.daemon
def test_replicas_and_one_process_come_to_the_same(
    sessions: Sessions, convolved: Attempt, own: NetworkCode
) -> None:
    replicas = asked(sessions, "replicas", own, spec=spec(strategy="replicate"))
    assert replicas.run() == 0
    assert replicas.weights() == convolved.weights()
    two = convolved.validation_losses()
    resume = Ref.model_validate(first_checkpoint(replicas))
    alone = asked(sessions, "replicas", own, number=2, procs=1, resume=resume)
    assert alone.run() == 0
    one = alone.validation_losses()
    assert len(one) >= 2
    assert max(abs(one[step] - two[step]) for step in one) < 1e-5


def first_checkpoint(attempt: Attempt) -> Ref:
    """The oldest one; those after it are gone, as if the session ended there."""
    import shutil

    oldest, *later = sorted(Path(attempt.request.output.checkpoints).glob("step-*"))
    for folder in later:
        shutil.rmtree(folder)
    return newest(oldest.parent)


def test_its_own_augmentation_is_the_same_after_a_kill_and_in_any_world(
    sessions: Sessions, convolved: Attempt, own: NetworkCode
) -> None:
    model = MODEL.model_copy(update={"augmentation": "network.py:shifted"})
    changes = spec(augmentation=Augmentation(mixup=0.4), prefetch=True, keep_last=100)
    first = asked(sessions, "changed", own, model=model, spec=changes)
    assert first.run() == 0, said(first)
    weights, losses = first.weights(), first.validation_losses()
    assert weights != convolved.weights()
    resume = left_at(first, 10)
    again = asked(sessions, "changed", own, model=model, spec=changes, number=2, resume=resume)
    assert again.run() == 0
    assert again.weights() == weights
    alone = asked(sessions, "alone", own, model=model, spec=changes, procs=1)
    alone.run_here()
    one = alone.validation_losses()
    assert max(abs(one[step] - losses[step]) for step in losses) < 1e-5


def test_an_augmentation_that_loses_a_row_is_told(sessions: Sessions, own: NetworkCode) -> None:
    model = MODEL.model_copy(update={"augmentation": "network.py:short"})
    with pytest.raises(TeamCodeFailed, match="augmentation returned something else than numeric"):
        asked(sessions, "short", own, model=model, procs=1).run_here()


@pytest.mark.daemon
@pytest.mark.parametrize("strategy", ["shard", "replicate"])
def test_it_computes_in_bf16(sessions: Sessions, own: NetworkCode, strategy: str) -> None:
    attempt = asked(sessions, "bf16", own, spec=spec(precision="bf16", strategy=strategy))
    assert attempt.run() == 0, said(attempt)
    file = Path(attempt.request.output.model) / "weights.safetensors"
    assert {tensor.dtype for tensor in load_file(file).values()} == {np.dtype("float32")}


@pytest.mark.daemon
def test_its_own_loss_and_groups_are_what_is_trained(
    sessions: Sessions, own: NetworkCode, tmp_path: Path
) -> None:
    """The group of the embeddings learns at nothing: they stay as they began."""
    model = MODEL.model_copy(
        update={"loss": "network.py:huber", "parameter_groups": "network.py:groups"}
    )
    frozen = asked(sessions, "own", own, model=model, spec=spec(epochs=1))
    assert frozen.run() == 0, said(frozen)
    plain = asked(sessions, "plain", own, spec=spec(epochs=1))
    assert plain.run() == 0
    one, other = (load_file(Path(a.request.output.model) / WEIGHTS) for a in (frozen, plain))
    assert set(one) == set(other)
    assert all((one[name] != other[name]).any() for name in one)
    longer = asked(sessions, "longer", own, model=model, spec=spec(epochs=2))
    assert longer.run() == 0
    more = load_file(Path(longer.request.output.model) / WEIGHTS)
    table = "network.tables.0.weight"
    assert (more[table] == one[table]).all()
    assert (more["network.last.weight"] != one["network.last.weight"]).any()


WEIGHTS = "weights.safetensors"


def test_the_parameters_of_a_group_may_come_as_an_iterator(data: Ref, tmp_path: Path) -> None:
    lazy = CONVOLUTION.replace('"params": tables', '"params": network.tables.parameters()')
    model = MODEL.model_copy(update={"parameter_groups": "network.py:groups"})
    own = code(tmp_path / "lazy", model, lazy)
    request = sanity_request(data, own, tmp_path).model_copy(update={"model": model})
    network = admit(request).network
    trained = [
        one for group in make_optimizer(network, SPEC).param_groups for one in group["params"]
    ]
    assert {id(one) for one in trained} == {id(one) for one in network.parameters()}


def score(convolved: Attempt, folder: Path, own: NetworkCode | None) -> tuple[int, ScoreRequest]:
    request = convolved.score_request(folder, code=own)
    (folder / "request.json").write_bytes(canonical_json(request))
    return program("score", folder / "request.json"), request


def test_it_is_scored_by_its_own_code_alone(
    convolved: Attempt, own: NetworkCode, tmp_path: Path
) -> None:
    assert score(convolved, tmp_path, own)[0] == 0
    predicted = np.load(tmp_path / "p.npy")
    assert predicted.shape == (300, 1)
    assert predicted.std() > 0.05

    (tmp_path / "other").mkdir()
    other = code(tmp_path / "edited", network=CONVOLUTION.replace("x.mean", "x.amax"))
    for wrong in (other, None):
        (tmp_path / "other" / "events.jsonl").unlink(missing_ok=True)
        assert score(convolved, tmp_path / "other", wrong)[0] == 64
        told = (tmp_path / "other" / "events.jsonl").read_text()
        assert f"needs the network code {own.digest[:12]}; the request brought " in told
        assert not (tmp_path / "other" / "p.npy").exists()


def sanity_request(data: Ref, own: NetworkCode, folder: Path) -> SanityRequest:
    return SanityRequest(
        session="sanity",
        attempt=1,
        model=MODEL,
        training=SPEC,
        data=data,
        code=own,
        output=Reports(events=str(folder / "events.jsonl"), result=str(folder / "r.json")),
        world=World(),
    )


def test_the_sanity_checks_are_those_of_ours(data: Ref, own: NetworkCode, tmp_path: Path) -> None:
    request = sanity_request(data, own, tmp_path)
    (tmp_path / "request.json").write_bytes(canonical_json(request))
    assert program("sanity", tmp_path / "request.json") == 0
    result = SanityResult.model_validate_json((tmp_path / "r.json").read_bytes())
    checks = result.checks
    assert result.size is not None and result.size.held_numbers > 8 * 2
    assert {check.name: check.outcome for check in checks if check.outcome != "passed"} == {}
    assert len(checks) >= 6


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("return Convolution", "return columns or Convolution"), "expected a torch.nn.Module"),
        (("x.mean(dim=1))", "x.mean(dim=1)[:1])"), "expected logits (2, 1), or (2, members, 1)"),
        (("channels) * 0.1", "channels).double()"), "float32"),
        (("x = block(x)", "x = blok(x)"), "network.py, line 23: its forward pass raised NameError"),
        (("import torch\n", "import torch\nimport nowhere\n"), "'nowhere'"),
        (("def build(", "def make("), "has no function 'build'"),
    ],
)
def test_what_is_wrong_with_it_is_told_with_its_line(
    sessions: Sessions, own: NetworkCode, change: tuple[str, str], told: str
) -> None:
    files = {**own.files, "network.py": own.files["network.py"].replace(*change)}
    broken = own.model_copy(update={"files": files})
    attempt = asked(sessions, "broken", broken, procs=1)
    assert attempt.run() == 67
    assert told in said(attempt)
    assert str(attempt.folder) not in said(attempt)


@pytest.mark.parametrize(
    ("where", "change", "told"),
    [
        ("forward", ("x = block(x)", "x = block(x if len(x) < 9 else x.nothing)"), 23),
        ("loss", ("wrong = torch.sigmoid(", "wrong = torch.sigmoids("), 32),
        ("augmentation", ("return numeric + torch.rand(", "return numeric + torch.rands("), 37),
        (
            "parameter_groups",
            ("p for name, p in network.named", "p for name, p in network.mamed"),
            45,
        ),
    ],
)
def test_what_it_raises_later_is_its_own_mistake_too(
    sessions: Sessions, own: NetworkCode, where: str, change: tuple[str, str], told: int
) -> None:
    named = {"loss": "huber", "augmentation": "shifted", "parameter_groups": "groups"}
    update = {where: f"network.py:{named[where]}"} if where in named else {}
    assert change[0] in own.files["network.py"]
    files = {**own.files, "network.py": own.files["network.py"].replace(*change)}
    broken = own.model_copy(update={"files": files})
    attempt = asked(sessions, "broken", broken, procs=1, model=MODEL.model_copy(update=update))
    assert attempt.run() == 67
    assert f"network.py, line {told}: it raised AttributeError" in said(attempt)


def test_what_is_no_number_on_validation_alone_is_told_as_that(
    sessions: Sessions, own: NetworkCode
) -> None:
    """One process has the rows of the split, and both end alike."""
    change = ("return self.last(", "return (0 if self.training else torch.nan) + self.last(")
    files = {**own.files, "network.py": own.files["network.py"].replace(*change)}
    broken = own.model_copy(update={"files": files})
    attempt = asked(sessions, "broken", broken)
    assert attempt.run() != 0
    assert {event.exit_code for event in attempt.events() if isinstance(event, Failed)} == {66}
    assert "the validation loss is nan: for some row of the validation split" in said(attempt)


TENSORS = """\
import torch
from torch import nn


class Pairs(nn.Module):
    def __init__(self, words: int, outputs: int) -> None:
        super().__init__()
        self.mixing = nn.Conv1d(1, 4, 2)
        self.table = nn.Embedding(words, 4)
        self.last = nn.Linear(6, outputs, bias=False)

    def forward(self, pair, unknown, word):
        assert pair.shape[1:] == (1, 2) and unknown.shape[1:] == (2,) and word.shape[1:] == (1,)
        assert (pair.dtype, word.dtype) == (unknown.dtype, torch.int32)
        x = torch.relu(self.mixing(pair)[:, :, 0]) + self.table(word[:, 0])
        return self.last(torch.cat([x, unknown], dim=1))


def build(config, columns):
    return Pairs(columns.cardinalities[0], columns.outputs)
"""
BATCH = {
    "pair": {"columns": ["z", "x"], "shape": [1, 2]},
    "unknown": {"columns": ["x", "z"], "nulls": True},
    "word": {"columns": ["c"]},
}


def test_it_is_called_with_the_tensors_that_it_declares_in_any_world(
    sessions: Sessions, tmp_path: Path
) -> None:
    model = Module.model_validate(
        {"family": "module", "module": "network.py:build", "batch": BATCH}
    )
    own = code(tmp_path / "tensors", model, TENSORS)
    kept = spec(keep_last=100)
    whole = asked(sessions, "whole", own, model=model, spec=kept)
    assert whole.run() == 0, said(whole)
    weights, losses = whole.weights(), whole.validation_losses()
    resume = left_at(whole, 10)
    again = asked(sessions, "whole", own, model=model, spec=kept, number=2, resume=resume)
    assert again.run() == 0
    assert again.weights() == weights
    alone = asked(sessions, "alone", own, model=model, procs=1)
    alone.run_here()
    one = alone.validation_losses()
    assert max(abs(one[step] - losses[step]) for step in one) < 1e-5
    assert one[max(one)] < 0.6


def test_a_tensor_has_the_columns_of_its_patterns_in_their_order_and_the_flags_of_nulls() -> None:
    columns = Columns(("a_0", "a_1", "b", "a_1 is null"), ("c", "d"), (3, 4), 1, "binary", ())
    numeric = torch.arange(8.0).view(2, 4)
    codes = torch.tensor([[1, 2], [2, 3]], dtype=torch.int32)

    def taken(**declared: object) -> list[object]:
        tensor = BatchTensor.model_validate(declared)
        return Slices.of(tensor, columns).taken(numeric, codes).tolist()

    assert taken(columns=["b", "a_*"]) == [[2, 0, 1], [6, 4, 5]]
    assert taken(columns=["a_*"], shape=[2, 1]) == [[[0], [1]], [[4], [5]]]
    assert taken(columns=["a_*", "b"], nulls=True) == [[0, 3, 0], [0, 7, 0]]
    assert taken(columns=["d"]) == [[2], [3]]


TWO_LAYERS = """\
from torch import nn


class Two(nn.Module):
    def __init__(self, columns) -> None:
        super().__init__()
        width = len(columns.numeric)
        self.layers = nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, 1, bias=False))

    def forward(self, numeric, categorical):
        return self.layers(numeric)


def build(config, columns):
    return Two(columns)
"""


def test_its_size_is_counted_as_it_is_built_and_tried(data: Ref, tmp_path: Path) -> None:
    own = code(tmp_path / "two", MODEL, TWO_LAYERS)
    size = network_size(admit(sanity_request(data, own, tmp_path)))
    assert size.parameters == 3 * 8 + 8 + 8 + 1  # x, z and the flag of z; the bias that we add
    assert size.held_numbers == 3 + 8  # what the two products read


def test_a_model_of_another_family_needs_no_code(own: NetworkCode) -> None:
    assert Module.model_validate_json(MODEL.model_dump_json()) == MODEL
    assert NetworkCode.model_validate_json(own.model_dump_json()).digest == own.digest
