"""Every family keeps what training asks of a network; each planted fault is named by its check."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from ml_assets.spec.base import canonical_json
from ml_assets.spec.network_code import NetworkCode
from ml_assets.spec.sanity import SanityCheck
from ml_assets.spec.training import Mlp, ModelSpec, TabM
from ml_assets.spec.training_program import Ref, Reports, SanityRequest, SanityResult, World
from ml_assets.training.distributed.ranks import Ranks, join, leave
from ml_assets.training.models.gpt import Block
from ml_assets.training.rows.arrays import open_set
from ml_assets.training.sanity.conformance import conform
from ml_assets.training.sanity.suite import admit
from ml_assets_tests.training import texts
from ml_assets_tests.training.conftest import SPEC, Attempt
from ml_assets_tests.training.networks import CONVOLUTION, DROPPED, MODEL, NORMED, code

FAMILIES: dict[str, ModelSpec] = {
    "tabm": TabM(family="tabm", width=16, depth=2, members=4),
    "mlp": Mlp(family="mlp", width=16, depth=2),
    "module": MODEL,
    "normed": MODEL,
    "dropped": MODEL,
    "gpt": texts.MODEL,
}
DEEP_CHECKS = [
    "shapes",
    "dtypes",
    "state",
    "deterministic",
    "no_batch_leak",
    "gradients",
    "shards",
    "resumes",
]


@pytest.fixture(scope="module")
def alone() -> Iterator[Ranks]:
    """A group of one, in this process."""
    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("error")
    yield join()
    leave()
    torch.set_deterministic_debug_mode("default")


def request(
    folder: Path, data: Ref, model: ModelSpec, own: NetworkCode | None, procs: int = 1
) -> SanityRequest:
    return SanityRequest(
        session="deep",
        attempt=1,
        model=model,
        training=SPEC,
        data=data,
        deep=True,
        code=own,
        output=Reports(events=str(folder / "events.jsonl"), result=str(folder / "result.json")),
        world=World(procs=procs),
    )


@pytest.mark.parametrize(
    ("training", "augmentation"),
    [
        ({"order": "blocks", "block_rows": 16, "block_window": 2}, None),
        ({"oversample": 0.48}, None),
        ({}, "network.py:shifted"),
    ],
    ids=["blocks", "oversampled", "augmented"],
)
def test_a_sound_network_conforms_whatever_its_training_draws_and_changes(
    training: dict[str, object], augmentation: str | None, data: Ref, alone: Ranks, tmp_path: Path
) -> None:
    model = MODEL.model_copy(update={"augmentation": augmentation})
    own = code(tmp_path / "pipeline", model)
    plain = request(tmp_path, data, model, own)
    changed = plain.model_copy(update={"training": SPEC.model_copy(update=training)})
    assert asked(changed, alone) == {}


def asked(asked_for: SanityRequest, ranks: Ranks) -> dict[str, SanityCheck]:
    folder, schema = open_set(asked_for.data)
    checks = conform(admit(asked_for), asked_for, folder, schema, ranks)
    assert [check.name for check in checks] == DEEP_CHECKS
    return {check.name: check for check in checks if check.outcome != "passed"}


@pytest.fixture
def data_of(data: Ref, tmp_path: Path) -> Callable[[str], Ref]:
    """The training set that a family reads."""

    def found(family: str) -> Ref:
        if family != "gpt":
            return data
        pytest.importorskip("tokenizers", reason="the extra 'language' is not installed")
        return texts.text_set(tmp_path / "texts")

    return found


def code_of(family: str, folder: Path) -> NetworkCode | None:
    texts = {"module": CONVOLUTION, "normed": NORMED, "dropped": DROPPED}
    return code(folder / "pipeline", network=texts[family]) if family in texts else None


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_conforms(
    family: str, data_of: Callable[[str], Ref], alone: Ranks, tmp_path: Path
) -> None:
    own = code_of(family, tmp_path)
    data = data_of(family)
    assert asked(request(tmp_path, data, FAMILIES[family], own), alone) == {}


@pytest.mark.parametrize(
    "family",
    ["normed", *(pytest.param(n, marks=pytest.mark.daemon) for n in FAMILIES if n != "normed")],
)
def test_it_conforms_in_two_processes(
    family: str, data_of: Callable[[str], Ref], tmp_path: Path
) -> None:
    own = code_of(family, tmp_path)
    told = request(tmp_path, data_of(family), FAMILIES[family], own, procs=2)
    attempt = Attempt(tmp_path, told)  # pyright: ignore[reportArgumentType]  another verb
    (tmp_path / "request-1.json").write_bytes(canonical_json(told))
    command = [word if word != "train" else "sanity" for word in attempt.command()]
    assert Attempt.started(command).wait(120) == 0
    result = SanityResult.model_validate_json((tmp_path / "result.json").read_bytes())
    assert [check.name for check in result.checks] == DEEP_CHECKS
    assert [check for check in result.checks if check.outcome != "passed"] == []


FORWARD = "        return self.last(x.mean(dim=1))"
INIT = "        self.last ="
PLANTS = {
    "a count in an attribute": (
        [(INIT, "        self.seen = 0\n" + INIT), (FORWARD, "        self.seen += 1\n" + FORWARD)],
        {"state": "network.seen (changed in the pass)"},
    ),
    "a list of its file": (
        [
            ("class Convolution", "SEEN = []\n\n\nclass Convolution"),
            (FORWARD, "        SEEN.append(len(x))\n" + FORWARD),
        ],
        {"state": "SEEN of network.py (changed in the pass)"},
    ),
    "a running mean in an attribute": (
        [
            (INIT, "        self.mean = torch.zeros(())\n" + INIT),
            (
                FORWARD,
                "        self.mean = 0.5 * self.mean + x.detach().mean()\n"
                "        return self.last(x.mean(dim=1) + self.mean)",
            ),
        ],
        {
            "state": "network.mean (a tensor that is neither)",
            "deterministic": None,
            "no_batch_leak": "when other rows are exchanged",
            "shards": None,
            "resumes": "to the bit",
        },
    ),
    "a mean over the rows": (
        [(FORWARD, "        return self.last((x - x.mean(dim=0)).mean(dim=1))")],
        {"no_batch_leak": "when other rows are exchanged", "shards": None, "shapes": None},
    ),
    "a shift over many rows alone": (
        [
            (
                FORWARD,
                "        if not self.training and len(x) > 100:\n"
                "            x = x.roll(1, 0)\n" + FORWARD,
            )
        ],
        {"no_batch_leak": "when other rows are exchanged"},
    ),
    "a sum that runs over many rows alone": (
        [(FORWARD, "        x = x + x.cumsum(0) * (len(x) > 5000)\n" + FORWARD)],
        {"no_batch_leak": "(as it is trained, 8,192 rows)"},
    ),
    "a batch norm of its own": (
        [
            ("class Convolution", "class Normed(nn.BatchNorm1d):\n    pass\n\n\nclass Convolution"),
            (INIT, "        self.norm = Normed(channels)\n" + INIT),
            (FORWARD, "        return self.last(self.norm(x.mean(dim=1)))"),
        ],
        {
            "no_batch_leak": "exchanged in network.norm (Normed) (as it is trained, 128 rows)",
            "state": "network.norm.running_mean (changed in the pass)",
            "shapes": None,
            "dtypes": None,
            "deterministic": None,
            "shards": None,
            "resumes": None,
        },
    ),
    "batch norm as a function": (
        [
            (
                FORWARD,
                "        x = x.mean(dim=1)\n"
                "        mean, var = x.new_zeros(x.shape[1]), x.new_ones(x.shape[1])\n"
                "        x = nn.functional.batch_norm(x, mean, var, training=self.training)\n"
                "        return self.last(x)",
            ),
        ],
        {
            "no_batch_leak": "when other rows are exchanged (as it is trained, 128 rows)",
            "shards": None,
        },
    ),
    "a mean over the rows before a batch norm": (
        [
            (INIT, "        self.norm = nn.BatchNorm1d(channels)\n" + INIT),
            (FORWARD, "        return self.last(self.norm((x - x.mean(dim=0)).mean(dim=1)))"),
        ],
        {
            "no_batch_leak": "when other rows are exchanged",
            "shapes": None,
            "shards": None,
            "gradients": None,
        },
    ),
    "batch norm over rows that are not in their order": (
        [
            (INIT, "        self.norm = nn.BatchNorm1d(channels)\n" + INIT),
            (
                FORWARD,
                "        y = self.norm(x.transpose(0, 1).flatten(0, 1))\n"
                "        x = y.unflatten(0, (x.shape[1], -1)).transpose(0, 1)\n" + FORWARD,
            ),
        ],
        {"no_batch_leak": "(in other microbatches, as it is trained, 128 rows)", "shards": None},
    ),
    "a running mean that a pass moves": (
        [
            (INIT, "        self.norm = nn.BatchNorm1d(channels)\n" + INIT),
            (
                FORWARD,
                "        self.norm.running_mean.add_(1.0)\n"
                "        return self.last(self.norm(x.mean(dim=1)))",
            ),
        ],
        {
            "state": "network.norm.running_mean (changed in the pass)",
            "no_batch_leak": None,
            "gradients": None,
        },
    ),
    "a bias that batch norm cancels": (
        [
            (INIT, "        self.norm = nn.BatchNorm1d(channels)\n" + INIT),
            (INIT, "        self.wide = nn.Linear(channels, channels)\n" + INIT),
            (FORWARD, "        return self.last(self.norm(self.wide(x.mean(dim=1))))"),
        ],
        {"gradients": "Batch norm cancels the gradient of network.wide.bias", "shards": None},
    ),
    "noise of its own": (
        [(FORWARD, "        return self.last((x + 0.1 * torch.rand_like(x)).mean(dim=1))")],
        {
            "deterministic": "draws from a global generator",
            "no_batch_leak": "Not judged",
            "shards": "Not judged",
            "resumes": "Not judged",
        },
    ),
    "dropout of its own": (
        [
            (
                FORWARD,
                "        x = nn.functional.dropout(x, 0.5, self.training)\n" + FORWARD,
            )
        ],
        {
            "deterministic": "draws from a global generator",
            "no_batch_leak": "Not judged",
            "shards": "Not judged",
            "resumes": "Not judged",
        },
    ),
    "the dropout of another layer": (
        [
            (INIT, "        self.drop = nn.Dropout1d(0.5)\n" + INIT),
            (FORWARD, "        return self.last(self.drop(x).mean(dim=1))"),
        ],
        {
            "deterministic": "draws from a global generator in network.drop (Dropout1d)",
            "no_batch_leak": "Not judged",
            "shards": "Not judged",
            "resumes": "Not judged",
        },
    ),
    "a parameter that cannot be cut": (
        [
            (INIT, "        self.scale = nn.Parameter(torch.tensor(1.0))\n" + INIT),
            (FORWARD, "        return self.last(x.mean(dim=1)) * self.scale"),
        ],
        {"shards": "scalar", "resumes": ""},
    ),
    "a row that is squeezed away": (
        [(FORWARD, "        return self.last(x.mean(dim=1)).squeeze(0)")],
        {"shapes": "It returned (1,) for 1 row", "dtypes": None},
    ),
}


@pytest.mark.parametrize("fault", PLANTS)
def test_a_planted_fault_is_named(fault: str, data: Ref, alone: Ranks, tmp_path: Path) -> None:
    changes, expected = PLANTS[fault]
    text = CONVOLUTION
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    own = code(tmp_path / "pipeline", network=text)
    found = asked(request(tmp_path, data, MODEL, own), alone)
    required = {name for name, words in expected.items() if words is not None}
    assert required <= set(found) <= set(expected), {n: c.reason for n, c in found.items()}
    for name, words in expected.items():
        assert words is None or words in found[name].reason


@pytest.mark.parametrize(
    ("fault", "named"),
    [("mean", "no_batch_leak"), ("noise", "deterministic"), ("count", "state")],
)
def test_a_fault_that_is_planted_in_a_block_of_ours_is_named(
    fault: str,
    named: str,
    data_of: Callable[[str], Ref],
    alone: Ranks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = Block.forward

    def spoiled(self: Block, x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        if fault == "mean":
            x = x - x.mean(0)
        if fault == "noise":
            x = x + 0.1 * torch.rand_like(x)
        if fault == "count":
            vars(self)["seen"] = vars(self).get("seen", 0) + 1
        return whole(self, x, turn)

    monkeypatch.setattr(Block, "forward", spoiled)
    found = asked(request(tmp_path, data_of("gpt"), FAMILIES["gpt"], None), alone)
    assert named in found
