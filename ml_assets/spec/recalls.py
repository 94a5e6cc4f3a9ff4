"""A recall: bad data, everything that it reached, and its author; the lifting of one; and rows in
quarantine that are published after all."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from ml_assets.spec.base import Digest, Frozen, unset
from ml_assets.spec.records import InputVersion, Time

Said = Annotated[str, StringConstraints(min_length=1, max_length=2000, strip_whitespace=True)]
RecallId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12}$")]


class RecalledStage(Frozen):
    """A stage that a recalled model was in."""

    pipeline: str
    stage: str
    model: Digest


class Recall(Frozen):
    """Holds what was recalled, when it was, and all that it had reached by then."""

    schema_version: Literal[1] = 1
    id: RecallId
    snapshot: str
    """As it was named."""
    seeds: tuple[InputVersion, ...] = Field(strict=False)
    """The tables that are bad themselves: their content counts, whoever made it again."""
    reached: tuple[InputVersion, ...] = Field(strict=False)
    """What was made from them, the seeds left out; in the order of the walk."""
    spared: tuple[InputVersion, ...] = Field(default=(), strict=False, exclude_if=unset)
    """What was made from them, and from sound inputs as well: each where the latter was."""
    stages: tuple[RecalledStage, ...] = Field(strict=False)
    author: Said
    reason: Said
    time: Time

    @property
    def told(self) -> str:
        """Its id and its reason, for a note beside what it reached."""
        return f"recall {self.id}: {self.reason}"

    def models(self) -> dict[str, tuple[str, ...]]:
        """Pipeline -> digests of its models that were reached."""
        found: dict[str, list[str]] = {}
        for version in (*self.seeds, *self.reached):
            pipeline, stage = version.key.split("/")[:2]
            if stage == "trained_model":
                found.setdefault(pipeline, []).append(version.version)
        return {pipeline: tuple(dict.fromkeys(models)) for pipeline, models in found.items()}


class Lift(Frozen):
    """A recall that holds no more."""

    schema_version: Literal[1] = 1
    id: RecallId
    author: Said
    reason: Said
    time: Time


ACTIVE_FILE = "recalls/active.json"
"""Holds ``ActiveRecalls``, in the snapshot store."""


class ActiveRecalls(Frozen):
    """Says which recalls hold: asked before every read, so it is one small file."""

    schema_version: Literal[1] = 1
    ids: tuple[RecallId, ...] = Field(strict=False)


def recall_file(recall: str) -> str:
    """Return where a recall lies in the snapshot store."""
    return f"recalls/{recall}.json"


RELEASED_BY = "ml_assets/released_by"
RELEASE_REASON = "ml_assets/release_reason"
"""Tags of the run that audits kept rows again."""


class RowsReleased(Frozen):
    """One release of a partition's rows, written down in the record of its table."""

    author: str = Field(min_length=1)
    reason: str = Field(min_length=1)
    rows: int
    """Rows that were kept back before and are published now."""
    run: str
    """Dagster run id."""
    time: Time
