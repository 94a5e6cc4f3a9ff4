"""A rank's sign of life, which its peers and the launcher read."""

from pathlib import Path
from typing import Annotated

from pydantic import AwareDatetime, Field

from ml_assets.spec.base import Frozen, Positive


class Heartbeat(Frozen):
    """What a rank leaves beside the events while it works, at most once a second."""

    attempt: Positive
    generation: Annotated[int, Field(ge=0)]
    """How often torchrun had started the attempt's processes again."""
    rank: Annotated[int, Field(ge=0)]
    pid: Positive
    host: str
    step: Annotated[int, Field(ge=0)]
    time: Annotated[AwareDatetime, Field(strict=False)]
    patience: float
    """Seconds that this rank now waits for another one in a step."""


def heartbeat_file(folder: Path, rank: int) -> Path:
    """Where a rank leaves its heartbeat, from the folder of the attempt's events."""
    return folder / f"heartbeat.{rank}.json"
