"""The usage of a session's attempt: which machines, how long, and how far its steps came."""

from typing import Annotated, Literal

from pydantic import Field

from ml_assets.settings import PriceClass
from ml_assets.spec.base import Digest, Fraction, Frozen, Positive, unset
from ml_assets.spec.records import Time

Verb = Literal["train", "score", "measure", "sanity"]
AttemptEnd = Literal["done", "pruned", "stopped", "lost", "stalled", "failed", "unstarted"]
"""``done``: with a whole result. ``pruned``: a study saw no prospect in it.
``stopped``: it was told to. ``lost``: a machine or its watcher
went. ``stalled``: nothing moved in it any more. ``failed``: by an error. ``unstarted``: before its
program ran."""
Count = Annotated[int, Field(ge=0)]


class Held(Frozen):
    """The machines of an attempt, and since when: what whoever ran it knows."""

    nodes: Positive
    gpus_per_node: Count = 0
    price_class: PriceClass
    created: Time
    """When it was asked for."""
    scheduled: Time | None
    """When the first machine was given: from here on they are held, and paid. None: never."""
    started: Time | None
    """When the program began on the last of them. None: never."""
    ended: Time
    """When nothing of it was left."""
    staged_bytes: Count = Field(default=0, exclude_if=unset)
    """That its machines fetched from the object store and put there, but for checkpoints."""


class Mark(Frozen):
    """Says where an attempt was at a moment."""

    after: Count
    """Milliseconds since the attempt was asked for."""
    step: Count
    waited: Fraction = Field(default=0.0, exclude_if=unset)
    """Share of the time of the steps since the mark before that they waited for data."""


class AttemptUsage(Frozen):
    """``usage.json`` beside an attempt's events, written when it has ended."""

    schema_version: Literal[1] = 1
    pipeline: str
    session: str
    attempt: Positive
    verb: Verb
    held: Held
    end: AttemptEnd
    steps: Positive | None = Field(default=None, exclude_if=unset)
    """That its training was to take, as the program said; None: it has none, or never said."""
    marks: tuple[Mark, ...] = Field(default=(), strict=False)
    """Where a training was, by time; a step that goes back began again from a checkpoint."""
    checkpoint_bytes: Count = Field(default=0, exclude_if=unset)
    """Bytes of the checkpoints that it saved."""
    checkpoint_bytes_sent: Count = Field(default=0, exclude_if=unset)
    """Bytes of those that went to an object store."""
    fetched_bytes: Count = Field(default=0, exclude_if=unset)
    """Bytes of rows that its processes fetched as they came to them."""
    model: Digest | None = Field(default=None, exclude_if=unset)
    """The model that it made."""

    @property
    def moved_bytes(self) -> int:
        """That went between its machines and the object store; a checkpoint that it went on from
        is not in it."""
        return self.held.staged_bytes + self.checkpoint_bytes_sent + self.fetched_bytes

    @property
    def gpus(self) -> int:
        """The GPUs on all of its machines."""
        return self.held.nodes * self.held.gpus_per_node
