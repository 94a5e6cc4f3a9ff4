"""A network's weights as safetensors: exported, loaded for scoring, or as initial weights.

At a warm start inputs and words are matched by name, so that a model with another day's vocabulary
fits; every other tensor has to have its shape. Numbers are encoded with the present mean and width.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from ml_assets.errors import StorageError
from ml_assets.spec.training import Boosted
from ml_assets.spec.training_program import (
    Calibration,
    ModelManifest,
    Preprocessing,
    Ref,
    ShardSchema,
    TrainRequest,
)
from ml_assets.store.safetensors_file import read_header
from ml_assets.training.calibration import Calibrator
from ml_assets.training.distributed.ranks import Ranks
from ml_assets.training.model_folder import label_words, open_model, write_model
from ml_assets.training.models.families import build, code_of, predictions
from ml_assets.training.models.gpt import GptNetwork
from ml_assets.training.models.network import Network
from ml_assets.training.models.team import TeamCode
from ml_assets.training.rows.arrays import Predict, Rows, SplitArrays
from ml_assets.training.rows.batches import tensors
from ml_assets.training.stop import BadData, BadRequest

WEIGHTS = "weights.safetensors"
State = Mapping[str, torch.Tensor]
_WINDOWS, _SAMPLES, _SAMPLE_TOKENS = 16, 4, 64
"""For a language model: windows scored at once, texts that it goes on with, tokens of each."""


def gathered(network: Network) -> dict[str, torch.Tensor]:
    """All weights, maybe in the network's memory; {} but on rank 0. All ranks must call it."""
    # a second to load, which a process that only scores does not wait for
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(network, options=options)
    return _apart({n: t for n, t in sorted(state.items()) if isinstance(t, torch.Tensor)})


def export(
    members: Sequence[State],
    request: TrainRequest,
    schema: ShardSchema,
    step: int,
    ranks: Ranks,
    calibrate: Calibrator,
) -> Ref | None:
    """Write the whole model from rank 0; None on the others.

    Args:
        members: the weights of each network, the best first; see ``gathered``.
        step: that the best ones are of.
    """
    if ranks.rank != 0:
        return None
    found = dict(members[0])
    if len(members) > 1:
        found = {f"{n}.{name}": t for n, one in enumerate(members) for name, t in one.items()}

    def calibration(folder: Path, manifest: ModelManifest) -> Calibration | None:
        threads, code = request.world.threads, code_of(request)
        return calibrate(lambda: load_predictor(folder, manifest, threads, code))

    write = partial(save_file, found)
    return write_model(request, schema, step, WEIGHTS, write, calibration, len(members))


def load_predictor(
    folder: Path, manifest: ModelManifest, threads: int, code: TeamCode | None = None
) -> Predict:
    """The network of a verified folder, ready to score.

    Args:
        code: of a team's own network.

    Raises:
        BadRequest: that is not the code that the manifest names.
    """
    found = code.digest if code else None
    if found != manifest.code:
        raise BadRequest(
            f"The model {folder} needs the network code"
            f" {manifest.code[:12] if manifest.code else 'of this package'}; the request brought"
            f" {found[:12] if found else 'none'}. Its weights are not loaded into another network."
        )
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode("error")
    networks = networks_of(folder, manifest, code)

    @torch.no_grad()
    def predict(rows: Rows) -> NDArray[np.float64]:
        taken = tensors(rows)
        said = [one(taken.numeric, taken.categorical, None) for one in networks]
        return np.mean([predictions(one, manifest.task).numpy() for one in said], axis=0)

    @torch.no_grad()
    def predict_texts(rows: Rows) -> NDArray[np.float64]:
        assert rows.starts is not None
        windows = torch.from_numpy(rows.categorical)
        said = [networks[0](windows.new_zeros(0), w, None) for w in windows.split(_WINDOWS)]
        each = predictions(torch.cat(said), manifest.task).numpy()
        return np.add.reduceat(each, rows.starts[:-1])

    return predict_texts if manifest.task == "language_model" else predict


def networks_of(folder: Path, manifest: ModelManifest, code: TeamCode | None) -> list[Network]:
    """The networks of a verified folder, the best first, as they score."""
    found: list[Network] = []
    for state in _members(held_tensors(folder, manifest), manifest.ensemble):
        made = build(manifest.model, manifest.preprocessing, manifest.task, manifest.classes, code)
        made.load_state_dict(state)
        found.append(made.eval())
    return found


def _members(state: State, count: int) -> list[dict[str, torch.Tensor]]:
    """The weights of each network of a model."""
    if count == 1:
        return [dict(state)]
    parted = [(*name.split(".", 1), tensor) for name, tensor in state.items()]
    return [{name: t for of, name, t in parted if of == str(n)} for n in range(count)]


@torch.no_grad()
def samples(
    folder: Path, manifest: ModelManifest, rows: SplitArrays
) -> tuple[tuple[int, ...], ...]:
    """Return how a language model continues the first tokens of some texts; always alike."""
    tokens = manifest.preprocessing.tokens
    assert tokens is not None
    (network,) = networks_of(folder, manifest, None)
    assert isinstance(network, GptNetwork)
    places = np.linspace(0, len(rows) - 1, min(_SAMPLES, len(rows))).astype(np.int64)
    taken = rows.take(places)
    assert taken.starts is not None
    first = torch.from_numpy(taken.categorical[taken.starts[:-1]]).long()
    given = first[:, : min(_SAMPLE_TOKENS, first.shape[1])].clamp(min=0)
    drawn = network.continued(given, given.shape[1], tokens.context, seed=0)
    return tuple(tuple(row) for row in drawn.tolist())


def _apart(state: State) -> dict[str, torch.Tensor]:
    """Each tensor in memory of its own, as the file wants it: one may have two names."""
    seen: set[int] = set()
    found: dict[str, torch.Tensor] = {}
    for name, tensor in state.items():
        found[name] = tensor.clone() if tensor.data_ptr() in seen else tensor.contiguous()
        seen.add(tensor.data_ptr())
    return found


_FIRST = "layers.0.weight"
"""[width, inputs]: an input that the weights do not know begins at zero, and says nothing yet."""
_OF_INPUTS, _SHOWN = (_FIRST, "layers.0.r"), 5
"""Tensors whose last axis is the inputs; most tensors that a message names."""


def warm_start(network: Network, init: Ref, schema: ShardSchema) -> str:
    """Give a whole network (before it is sharded) the weights of ``init``; what was done, in words.

    Args:
        init: the folder of a model, or a .safetensors file; see ``TrainRequest.init``.

    Raises:
        BadData: they are damaged, or no safetensors.
        BadRequest: they are of another model; the message names every tensor that does not fit.
    """
    file = Path(init.uri)
    fresh = network.state_dict()
    if file.suffix == ".safetensors":
        found, said = _read(file, init.digest), "its columns and categories are used unchanged"
        fitted = dict(found)
    else:
        manifest = open_model(init)
        _check_kind(init, manifest, schema)
        weights = manifest.weights
        found = _members(_read(file / weights.path, weights.sha256), manifest.ensemble)[0]
        if network.inputs_by_name:
            match = _Match(manifest.preprocessing, schema.preprocessing, found, fresh)
            fitted, said = match.state(), match.said()
        else:
            fitted, said = dict(found), _same_inputs(init, manifest.preprocessing, schema)
    _check_shapes(init, fitted, fresh)
    network.load_state_dict(fitted)
    return f"training begins with the weights of {init.uri} ({init.digest[:12]}): {said}"


def _read(file: Path, sha256: str) -> dict[str, torch.Tensor]:
    try:
        found, digest = read_tensors(file)
    except (OSError, StorageError) as error:
        raise BadData(
            f"training.init_from: {file} is not a complete safetensors file ({error}). Nothing of "
            "it was used; write it again with safetensors, or remove init_from."
        ) from error
    if digest != sha256:
        raise BadData(f"training.init_from: {file} has changed: it is not {sha256[:12]} now.")
    return found


def held_tensors(folder: Path, manifest: ModelManifest) -> dict[str, torch.Tensor]:
    """The weights of a model: the very bytes that were held to its manifest.

    Raises:
        BadData: the file was changed since it was looked at.
    """
    file = folder / manifest.weights.path
    try:
        found, digest = read_tensors(file)
    except (OSError, StorageError) as error:
        raise BadData(f"The model {folder} cannot be used: {error}") from error
    if digest != manifest.weights.sha256:
        raise BadData(f"{file} was changed while it was loaded: its checksum is {digest[:12]}.")
    return found


def read_tensors(file: Path) -> tuple[dict[str, torch.Tensor], str]:
    """The tensors of a safetensors file, in memory of their own, and the SHA-256 of what was read:
    whoever swaps the file afterwards, or under the reader, changes the digest or nothing.

    Raises:
        StorageError: it is something else, or claims what it does not hold.
    """
    found: dict[str, torch.Tensor] = {}
    with file.open("rb") as handle:
        begin, header = read_header(file, handle)
        digest = hashlib.sha256(begin)
        for name, tensor in header.items():
            kind = _KINDS.get(tensor["dtype"])
            if kind is None:
                raise StorageError(f"{file}: the tensor {name[:80]!r} is of {tensor['dtype']}.")
            found[name] = torch.empty(tensor["shape"], dtype=kind)
            room = found[name].view(-1).view(torch.uint8).numpy().data
            if handle.readinto(room) != len(room):
                raise StorageError(f"{file} ends within the tensor {name[:80]!r}.")
            digest.update(room)
    return found, digest.hexdigest()


_KINDS = {
    "BF16": torch.bfloat16,
    "BOOL": torch.bool,
    "F16": torch.float16,
    "F32": torch.float32,
    "F64": torch.float64,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "I8": torch.int8,
    "U8": torch.uint8,
}
"""Types of tensors that a network may have, as the format names them."""


def _check_kind(init: Ref, manifest: ModelManifest, schema: ShardSchema) -> None:
    if isinstance(manifest.model, Boosted):
        raise BadRequest(
            f"training.init_from: the model {init.uri} is of trees, a network cannot begin with"
            " them. Remove init_from until a network is released."
        )
    was, now = (manifest.task, manifest.classes), (schema.task, schema.classes)
    if was != now:
        raise BadRequest(
            f"training.init_from: the model {init.uri} predicts {label_words(*was)}, this training"
            f" {label_words(*now)}: its outputs mean something else. Remove init_from."
        )


def _same_inputs(init: Ref, was: Preprocessing, schema: ShardSchema) -> str:
    """Nobody knows which weights of a team's network belong to which word: all have to be the same.

    Raises:
        BadRequest: columns or words differ.
    """
    now = schema.preprocessing
    words = [[column.vocabulary for column in of.categorical] for of in (was, now)]
    if _names(was) != _names(now) or words[0] != words[1] or was.tokens != now.tokens:
        raise BadRequest(
            f"training.init_from: {init.uri} has other columns or categories, and a network of"
            " your own does not say which of its weights belong to them. Remove init_from."
        )
    return "its columns and categories are the same"


def _check_shapes(init: Ref, fitted: State, fresh: State) -> None:
    """The first tensors that do not fit, each with the shape found and the one expected."""
    wrong = [
        f"{name} is {_shape(fitted.get(name))}, expected {_shape(fresh.get(name))}"
        for name in sorted({*fitted, *fresh})
        if _shape(fitted.get(name)) != _shape(fresh.get(name))
    ]
    if wrong:
        more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise BadRequest(
            f"training.init_from: {init.uri} does not fit: {'; '.join(wrong[:_SHOWN])}{more}. Set"
            " model.family, width, depth and members to what they were there, or remove init_from."
        )


def _shape(tensor: torch.Tensor | None) -> str:
    return "absent" if tensor is None else "x".join(map(str, tensor.shape))


@dataclass
class _Match:
    """Weights of one preprocessing, for another."""

    was: Preprocessing
    now: Preprocessing
    found: State
    fresh: State
    _new_words: dict[str, int] = field(default_factory=dict)
    """Column -> words that the weights have no row for."""

    def state(self) -> dict[str, torch.Tensor]:
        """The tensors, with those that know columns and words in the order of now."""
        state = {name: t for name, t in self.found.items() if not name.startswith("embeddings.")}
        for place, column in enumerate(self.now.categorical):
            state[_table(place)] = self._embedding(column.name, column.vocabulary, place)
        before, after = _inputs(self.was, self.found), _inputs(self.now, self.fresh)
        known = [(before.index(name), n) for n, name in enumerate(after) if name in before]
        source, target = [pair[0] for pair in known], [pair[1] for pair in known]
        for name in set(_OF_INPUTS) & state.keys() & self.fresh.keys():
            old, new = state[name], self.fresh[name].clone()
            if old.shape[0] != new.shape[0]:
                continue  # it is told as a shape that does not fit
            if name == _FIRST:
                new.zero_()
            new[:, target] = old[:, source]
            state[name] = new
        return state

    def said(self) -> str:
        """A sentence on what is new and what is gone."""
        before, after = _names(self.was), _names(self.now)
        parts = [
            ("new inputs, at first of weight 0", [name for name in after if name not in before]),
            ("inputs that are gone", [name for name in before if name not in after]),
            ("categories it never saw", [f"{n} of {c}" for c, n in self._new_words.items() if n]),
        ]
        told = [f"{what}: {', '.join(names[:_SHOWN])}" for what, names in parts if names]
        return "; ".join(told) or "it knows every input and every category"

    def _embedding(self, column: str, words: Sequence[str], place: int) -> torch.Tensor:
        """[words + 1, width], row 0 for what is unknown; fresh values where there were none."""
        table = self.fresh[_table(place)].clone()
        names = [c.name for c in self.was.categorical]
        if column not in names:
            return table
        before = names.index(column)
        old = self.found[_table(before)]
        row_of = {w: n for n, w in enumerate(self.was.categorical[before].vocabulary, start=1)}
        rows = [0, *(row_of.get(word, -1) for word in words)]
        target = [n for n, row in enumerate(rows) if row >= 0]
        source = [row for row in rows if row >= 0]
        width = min(old.shape[1], table.shape[1])
        table[target, :width] = old[source, :width]
        self._new_words[column] = len(rows) - len(target)
        return table


def _inputs(preprocessing: Preprocessing, state: State) -> list[tuple[str, int]]:
    """A name for each input of the first layer: a column, and the place in its embedding."""
    numbers = len(preprocessing.numeric) + len(preprocessing.null_flags)
    named = [(name, 0) for name in _names(preprocessing)[:numbers]]
    for place, column in enumerate(preprocessing.categorical):
        named += [(column.name, n) for n in range(state[_table(place)].shape[1])]
    return named


def _names(preprocessing: Preprocessing) -> list[str]:
    """The columns of the input, in order: numbers, whether they are null, categories."""
    return [
        *(column.name for column in preprocessing.numeric),
        *(f"{name} is null" for name in preprocessing.null_flags),
        *(column.name for column in preprocessing.categorical),
    ]


def _table(place: int) -> str:
    return f"embeddings.tables.{place}.weight"
