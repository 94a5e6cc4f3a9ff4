"""The teacher of a distillation: a released model, asked for each row that a step learns from.

It gets the rows as the step sees them, changed and mixed. They are encoded for this training; the
teacher may have other words and means, so they are encoded for it again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ml_assets.spec.ensemble import Distill
from ml_assets.spec.training import Boosted, Task
from ml_assets.spec.training_program import (
    LabelScale,
    Preprocessing,
    Ref,
    ShardSchema,
    TrainRequest,
)
from ml_assets.training.losses import distillation_losses
from ml_assets.training.model_folder import label_words, open_model
from ml_assets.training.models.families import code_of
from ml_assets.training.models.network import Network
from ml_assets.training.rows.batches import Tensors
from ml_assets.training.stop import BadRequest
from ml_assets.training.weights import networks_of

_CLIP = 8.0
"""See ``NumericColumn``."""


@dataclass(frozen=True)
class Columns:
    """Rows as a training encodes them -> as the teacher does: both by the names of the columns."""

    source: torch.Tensor
    """[f] the column of ``numeric`` that each of the teacher's numbers and flags is made of; its
    last column is zeros."""
    missing: torch.Tensor
    """[numbers] the column of ``numeric`` with the null flag of each, or the zeros."""
    scale: torch.Tensor
    shift: torch.Tensor
    words: Sequence[tuple[int, torch.Tensor]]
    """For each of the teacher's categories the column, and its code -> the teacher's."""

    @classmethod
    def between(cls, mine: Preprocessing, its: Preprocessing, device: torch.device) -> "Columns":
        """From this training's encoding to the teacher's.

        Raises:
            BadRequest: the teacher has columns that are not there.
        """
        numbers = {column.name: place for place, column in enumerate(mine.numeric)}
        flags = {name: len(numbers) + place for place, name in enumerate(mine.null_flags)}
        zeros = len(numbers) + len(flags)
        categories = {column.name: place for place, column in enumerate(mine.categorical)}
        names = [one.name for one in its.numeric]
        lacking = [name for name in names if name not in numbers]
        lacking += [one.name for one in its.categorical if one.name not in categories]
        if lacking:
            raise BadRequest(
                f"training.distill: the teacher reads {', '.join(lacking[:5])}, which this training"
                " set does not have: teach by a model of the same columns, or remove distill."
            )
        source = [numbers[name] for name in names]
        was = [mine.numeric[place] for place in source]
        scale = [a.std / b.std for a, b in zip(was, its.numeric, strict=True)]
        shift = [(a.mean - b.mean) / b.std for a, b in zip(was, its.numeric, strict=True)]
        source += [flags.get(name, zeros) for name in its.null_flags]
        words = []
        for column in its.categorical:
            codes = {word: code for code, word in enumerate(column.vocabulary, start=1)}
            place = categories[column.name]
            table = [0, *(codes.get(word, 0) for word in mine.categorical[place].vocabulary)]
            words.append((place, torch.tensor(table, dtype=torch.int32, device=device)))
        return cls(
            torch.tensor(source, dtype=torch.int64, device=device),
            torch.tensor([flags.get(n, zeros) for n in names], dtype=torch.int64, device=device),
            torch.tensor(scale, dtype=torch.float32, device=device),
            torch.tensor(shift, dtype=torch.float32, device=device),
            tuple(words),
        )

    def of(self, rows: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        """(numeric [n, f], categorical [n, c]) of rows, as the teacher reads them."""
        zeros = rows.numeric.new_zeros(len(rows.numeric), 1)
        wide = torch.cat([rows.numeric, zeros], dim=1)
        taken, count = wide[:, self.source], len(self.scale)
        numbers = (taken[:, :count] * self.scale + self.shift).clamp(-_CLIP, _CLIP)
        numbers = numbers.masked_fill(wide[:, self.missing] > 0, 0.0)
        codes = [table[rows.categorical[:, place].long()] for place, table in self.words]
        categorical = torch.stack(codes, dim=1) if codes else rows.categorical[:, :0]
        return torch.cat([numbers, taken[:, count:]], dim=1), categorical


@dataclass(frozen=True)
class Teacher:
    """A released model with the loss that holds a network to it."""

    networks: Sequence[Network]
    columns: Columns
    task: Task
    spec: Distill
    scale: tuple[float, float] = (1.0, 0.0)
    """Regression: from the teacher's standardized number to this training's."""

    def losses(self, logits: torch.Tensor, rows: Tensors) -> torch.Tensor:
        """Return what is added to the loss of each row, [n]."""
        taught = self.says(rows)
        return self.spec.weight * distillation_losses(
            logits, taught, self.task, self.spec.temperature
        )

    @torch.no_grad()
    def says(self, rows: Tensors) -> torch.Tensor:
        """[n, outputs]: the mean over its networks and their members of the softened probabilities,
        or of the numbers."""
        numeric, categorical = self.columns.of(rows)
        said = [network(numeric, categorical, None) for network in self.networks]
        match self.task:
            case "binary":
                each = [torch.sigmoid(one / self.spec.temperature) for one in said]
            case "multiclass":
                each = [torch.softmax(one / self.spec.temperature, dim=-1) for one in said]
            case _:
                each = [one * self.scale[0] + self.scale[1] for one in said]
        return torch.stack([one.mean(1) for one in each]).mean(0)


def load_teacher(
    request: TrainRequest, schema: ShardSchema, device: torch.device
) -> Teacher | None:
    """The teacher that a request brings, on a device; None: it brings none.

    Raises:
        BadData: it is damaged.
        BadRequest: it cannot teach this network; the message says why.
    """
    ref, spec = request.teacher, request.training.distill
    if ref is None or spec is None:
        return None
    manifest, code = open_model(ref), code_of(request)
    if isinstance(manifest.model, Boosted):
        raise _refused(ref, "is of trees, which no step can ask: teach by a network")
    was, now = (manifest.task, manifest.classes), (schema.task, schema.classes)
    if was != now:
        raise _refused(ref, f"predicts {label_words(*was)}, this training {label_words(*now)}")
    if manifest.code is not None and manifest.code != (code.digest if code else None):
        raise _refused(ref, "is a network of a team's own, of other code than this one")
    columns = Columns.between(schema.preprocessing, manifest.preprocessing, device)
    folder = Path(ref.uri)
    networks = [
        one.to(device).requires_grad_(False)
        for one in networks_of(folder, manifest, code if manifest.code else None)
    ]
    scale = _scale(manifest.label_scale, schema.label_scale)
    return Teacher(networks, columns, schema.task, spec, scale)


def _scale(its: LabelScale | None, mine: LabelScale | None) -> tuple[float, float]:
    if its is None or mine is None:
        return 1.0, 0.0
    return its.std / mine.std, (its.mean - mine.mean) / mine.std


def _refused(ref: Ref, why: str) -> BadRequest:
    said = f"training.distill: the model {ref.digest[:12]} {why}."
    return BadRequest(f"{said} Name another version in training.distill.from, or remove distill.")
