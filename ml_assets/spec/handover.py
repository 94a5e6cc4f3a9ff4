"""The hand-over document for other servers, beside a release's weights."""

from typing import Literal

from pydantic import Field

from ml_assets.spec.base import Digest, Frozen
from ml_assets.spec.gates import Target
from ml_assets.spec.records import Interval, Measured, SliceMetrics, Time
from ml_assets.spec.rollout import RolloutSpec


class Tensor(Frozen):
    """An input or an output, as the Open Inference Protocol names it: one value for each row."""

    name: str
    datatype: Literal["FP64", "BYTES"]


class Golden(Frozen):
    """Rows by column, null where there is no value, and what the model has to say of them."""

    inputs: dict[str, tuple[float | str | None, ...]]
    outputs: dict[str, tuple[float | str, ...]]
    relative: float
    absolute: float
    """A number may differ by ``absolute + relative * |expected|``: another machine rounds another
    way."""


class Handover(Frozen):
    """The handover of one release."""

    schema_version: Literal[1] = 1
    pipeline: str
    model: Digest
    stage: Target
    ledger_line: int
    """That put it there."""
    released: Time
    author: str
    reason: str
    inputs: tuple[Tensor, ...] = Field(strict=False)
    outputs: tuple[Tensor, ...] = Field(strict=False)
    golden: Golden
    rollback_to: Digest | None
    """The newest model before that nobody put out and no recall reaches; None: there is none."""
    rollout: RolloutSpec | None
    """How it is to meet traffic; None: the spec does not say."""
    drift_profile: Digest | None
    """The digest of ``baseline.json``, which new rows are compared with; None: there is none."""
    slices: tuple[SliceMetrics, ...] = Field(strict=False)
    """The parts of the holdout that it did worst on: to be watched."""
    metrics: dict[str, Interval]
    """On the holdout."""
    measured: Measured
    """How fast it was where it was judged."""
    certificate: Digest | None = None
    """The digest of ``certificate.json``, which lies beside it; None: an older version wrote it."""
