"""A network of the team's own: built by a function of the pipeline's folder, called like ours."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ml_assets.errors import MlAssetsError, counted
from ml_assets.spec.network_batch import BatchTensor
from ml_assets.spec.network_code import NetworkCode, code_folder, missing_packages
from ml_assets.spec.team_modules import import_file, line_in
from ml_assets.spec.training import Module, Task, outputs_of
from ml_assets.spec.training_program import Preprocessing
from ml_assets.store.objects import write_whole
from ml_assets.training.models.batch_norm import microbatches_told, replace_batch_norm
from ml_assets.training.models.layers import Masks
from ml_assets.training.models.network import Network, is_large
from ml_assets.training.stop import NotInstalled, TeamCodeFailed

_FLAG = " is null"
_PROBED = 2
"""Rows of zeros that a network is tried on when it is built."""


@dataclass(frozen=True)
class Columns:
    """Holds what a team's ``build`` is told of the inputs and the outputs."""

    numeric: tuple[str, ...]
    """A name for each column of ``numeric`` [n, f] float32: standardized numbers, null is 0; then
    the flags, ``x is null``, 0 or 1."""
    categorical: tuple[str, ...]
    """A name for each column of ``categorical`` [n, c] int32."""
    cardinalities: tuple[int, ...]
    """How many codes each of them has: 0 is null or unknown, the words begin at 1."""
    outputs: int
    """Logits of a row: 1, or one for each class."""
    task: Task
    classes: tuple[str, ...]
    """Multiclass: in the order of the logits."""

    @classmethod
    def of(cls, preprocessing: Preprocessing, task: Task, classes: Sequence[str]) -> "Columns":
        """The columns of a training set."""
        flags = (f"{name}{_FLAG}" for name in preprocessing.null_flags)
        categorical = preprocessing.categorical
        return cls(
            (*(column.name for column in preprocessing.numeric), *flags),
            tuple(column.name for column in categorical),
            tuple(len(column.vocabulary) + 1 for column in categorical),
            outputs_of(task, classes),
            task,
            tuple(classes),
        )


@dataclass(frozen=True)
class Slices:
    """A declared tensor of a batch, as runs of neighbouring columns."""

    numbers: bool
    """Of ``numeric``; else of ``categorical``."""
    runs: tuple[tuple[int, int], ...]
    """(first column, how many); the first is -1 where nothing was null, so all are 0."""
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: BatchTensor, columns: Columns) -> "Slices":
        """Return where the columns of a tensor lie.

        Raises:
            ValueError: they are not there, or do not fill the shape.
        """
        flags = {f"{name}{_FLAG}" for name in columns.numeric}
        names = [name for name in columns.numeric if name not in flags]
        chosen = tensor.among(names, columns.categorical)
        numbers = chosen[0] in names
        if tensor.nulls:
            chosen = tuple(f"{name}{_FLAG}" for name in chosen)
        held = columns.numeric if numbers else columns.categorical
        places = [held.index(name) if name in held else -1 for name in chosen]
        return cls(numbers, tuple(_runs(places)), tensor.shape or (len(places),))

    def taken(self, numeric: torch.Tensor, categorical: torch.Tensor) -> torch.Tensor:
        """[n, f] and [n, c] -> [n, *shape]."""
        held = numeric if self.numbers else categorical
        parts = [
            held[:, first : first + count] if first >= 0 else held.new_zeros(len(held), count)
            for first, count in self.runs
        ]
        whole = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        return whole.reshape(len(held), *self.shape)


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, how many) of places that follow each other, or are all -1."""
    first, count = places[0], 0
    for place in places:
        if count and place != (first + count if first >= 0 else -1):
            yield first, count
            first, count = place, 0
        count += 1
    yield first, count


@dataclass(frozen=True)
class TeamCode:
    """A network's code, written where this process can import it."""

    folder: Path
    digest: str

    @classmethod
    def written(cls, code: NetworkCode, beside: Path) -> "TeamCode":
        """Write the files below a folder; every process may, all write the same.

        Raises:
            NotInstalled: a package is not here as the code was read with.
        """
        if lacking := missing_packages(code):
            raise NotInstalled(f"the network's code does not fit what is installed: {lacking}")
        folder = code_folder(beside, code)
        for name, text in code.files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, text.encode(), durable=False)
        return cls(folder, code.digest)

    def function(self, path: str) -> Callable[..., Any]:
        """Import the function that ``file.py:name`` names.

        Raises:
            TeamCodeFailed: it cannot be imported, or has no such function.
        """
        file, _, name = path.partition(":")
        try:
            found = getattr(import_file(self.folder, file, "network"), name, None)
        except MlAssetsError as error:
            said = str(error).replace(f"{self.folder}/", "")
            said = said.replace(str(self.folder), "the pipeline's folder")
            raise TeamCodeFailed(said) from error
        if not callable(found):
            raise TeamCodeFailed(f"{file} has no function {name!r}, which model names: {path!r}.")
        return found

    def called(self, path: str, what: str, work: Callable[[], Any]) -> Any:
        """Return what a call of the team's code returns.

        Raises:
            TeamCodeFailed: it raised something; the message has the line.
        """
        try:
            return work()
        except Exception as error:  # a team's code may raise anything
            where = line_in(self.folder, error) or path
            raise TeamCodeFailed(
                f"{where}: {what} raised {type(error).__name__}: {error}"
            ) from error


class TeamNetwork(Network):
    """The team's module with an output bias of ours; ``nn.Dropout`` in it draws our masks, and
    ``nn.BatchNorm`` normalizes logical microbatches."""

    not_decayed = ("output_bias",)
    inputs_by_name = False

    def __init__(self, spec: Module, code: TeamCode, columns: Columns) -> None:
        super().__init__()
        self.spec = spec
        self._code = code
        build = code.function(spec.module)
        given = f"given the config {dict(spec.config)}, it"
        made = code.called(spec.module, given, lambda: build(dict(spec.config), columns))
        if not isinstance(made, nn.Module):
            raise TeamCodeFailed(
                f"{spec.module} returned a {type(made).__name__}; expected a torch.nn.Module."
            )
        try:
            self._batch = {name: Slices.of(one, columns) for name, one in spec.batch.items()}
        except ValueError as error:
            raise TeamCodeFailed(f"model.batch does not fit the training set: {error}") from error
        self._drops = _replace_dropout(made)
        self.network = made
        self.output_bias = nn.Parameter(torch.zeros(1, columns.outputs))
        self._outputs = columns.outputs
        self._probe(columns)
        self._norms = replace_batch_norm(made)  # lazy ones have their shapes now
        self.own_loss = code.function(spec.loss) if spec.loss else None
        self.own_augmentation = code.function(spec.augmentation) if spec.augmentation else None

    def forward(
        self, numeric: torch.Tensor, categorical: torch.Tensor, masks: Masks | None
    ) -> torch.Tensor:
        for drop in self._drops:
            drop.masks = masks
        with microbatches_told(self._norms, masks):
            logits = self._called(numeric, categorical)
        if logits.dim() not in (2, 3) or len(logits) != len(numeric):
            raise TeamCodeFailed(
                f"The network returned {tuple(logits.shape)} for {counted(len(numeric), 'row')};"
                " expected the rows as the first dimension: (rows, outputs), or (rows, members,"
                " outputs)."
            )
        return (logits if logits.dim() == 3 else logits.unsqueeze(1)) + self.output_bias

    def _called(self, numeric: torch.Tensor, categorical: torch.Tensor) -> torch.Tensor:
        """What the team's module says, called as the spec has it."""
        if not self._batch:
            return self.network(numeric, categorical)
        return self.network(
            **{k: one.taken(numeric, categorical) for k, one in self._batch.items()}
        )

    def units(self) -> Sequence[nn.Module]:
        """The large items of its lists and sequences, none within another."""
        return list(_large_items(self.network))

    def own_groups(self) -> list[dict[str, Any]] | None:
        """See ``Network.own_groups``; the output bias is a group of its own.

        Raises:
            TeamCodeFailed: a parameter is in no group, or in two.
        """
        path = self.spec.parameter_groups
        if path is None:
            return None
        function = self._code.function(path)
        groups = self._code.called(path, "it", lambda: [*map(_listed, function(self.network))])
        given = [id(one) for group in groups for one in group["params"]]
        for name, parameter in self.network.named_parameters():
            if given.count(id(parameter)) != 1:
                found = "no group" if id(parameter) not in given else "two groups"
                raise TeamCodeFailed(f"{path}: the parameter {name} is in {found}; expected one.")
        return [*groups, {"params": [self.output_bias], "weight_decay": 0.0}]

    def _probe(self, columns: Columns) -> None:
        """Try it on a few rows: lazy layers get their shapes, and what is wrong is told at once.

        Raises:
            TeamCodeFailed: it raises something, or returns no logits.
        """
        other = [n for n, p in self.network.named_parameters() if _is_other(p)]
        if other:
            raise TeamCodeFailed(
                f"The parameters {', '.join(other[:3])} are not float32: training keeps float32, "
                "and does the computing in training.precision itself."
            )
        rows = torch.zeros(_PROBED, len(columns.numeric))
        codes = torch.zeros(_PROBED, len(columns.categorical), dtype=torch.int32)
        self.network.eval()
        with torch.no_grad():
            logits = self._code.called(
                self.spec.family, "its forward pass", lambda: self._called(rows, codes)
            )
        self.network.train()
        shape = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        fits = isinstance(logits, torch.Tensor) and logits.dim() in (2, 3)
        if not fits or (len(logits), logits.shape[-1]) != (_PROBED, self._outputs):
            raise TeamCodeFailed(
                f"The network returned {shape} for {_PROBED} rows; expected logits"
                f" ({_PROBED}, {self._outputs}), or ({_PROBED}, members, {self._outputs})."
            )


def _listed(group: Mapping[str, Any]) -> dict[str, Any]:
    """A group with its parameters in a list: an iterator of them can be read only once."""
    given = group["params"]
    return {**group, "params": [given] if isinstance(given, torch.Tensor) else list(given)}


def _is_other(parameter: nn.Parameter) -> bool:
    lazy = isinstance(parameter, nn.UninitializedParameter)
    return not lazy and parameter.dtype != torch.float32


class RowDropout(nn.Module):
    """``nn.Dropout`` whose masks are a function of (seed, step, microbatch): see ``Masks``."""

    def __init__(self, rate: float, number: int) -> None:
        super().__init__()
        self.rate, self.number = rate, number
        self.masks: Masks | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, ...], the rows first; without masks it changes nothing."""
        if self.masks is None or not self.rate:
            return x
        drawn = self.masks.draw(self.number, x[0].numel(), self.rate)
        return x * drawn.view(x.shape).to(x)


def _replace_dropout(network: nn.Module) -> list[RowDropout]:
    """Put ours in place of every ``nn.Dropout``: theirs draw what no two worlds share.

    One that is at two places becomes two: ``named_children`` would leave the second one out.
    """
    drops: list[RowDropout] = []
    for owner in list(network.modules()):
        for name, child in list(owner._modules.items()):
            if type(child) is nn.Dropout:
                drops.append(RowDropout(child.p, len(drops)))
                setattr(owner, name, drops[-1])
    return drops


def _large_items(network: nn.Module) -> Iterator[nn.Module]:
    for child in network.children():
        if isinstance(network, nn.ModuleList | nn.Sequential) and is_large(child):
            yield child
        else:
            yield from _large_items(child)
