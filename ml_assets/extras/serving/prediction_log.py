"""The prediction log of a server: which model answered which row with what, and when.

Rows wait in memory and go to the object store as Parquet files, one folder for each hour; the asset
``predictions`` makes tables of them. A killed process loses the seconds since the last file.
"""

import asyncio
import io
import os
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ml_assets.spec.gates import Target
from ml_assets.store.objects import LocalObjects
from ml_assets.store.pipeline_context import Pipeline

if TYPE_CHECKING:
    import polars as pl

FOLDER = "predictions"
"""The folder of the object store: ``predictions/<pipeline>/<hour>/<part>.parquet``."""
KEY = ("moment", "request", "row")
"""What names one prediction."""
_HOUR = "%Y-%m-%dT%H"
_IS_HOUR = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}")
_SETTLED = timedelta(minutes=2)
"""After the end of an hour: a request that began in it has ended, and its rows are written."""


@dataclass(frozen=True)
class Answered:
    """The rows of one request that one model answered."""

    moment: datetime
    request: str
    rows: Sequence[int]
    stage: Target
    model: str
    seconds: float
    key: Mapping[str, Sequence[object]]
    """Columns of the features' key, as far as the request has them."""
    outputs: Mapping[str, Sequence[float | str]]


@dataclass
class PredictionLog:
    """Holds what one server answered, until it is written."""

    pipeline: Pipeline
    every: float = 5.0
    """Seconds between two files."""
    most: int = 200_000
    """Rows that wait while the object store is away; later ones are lost, and counted."""
    lost: int = 0
    """Rows."""
    _waiting: list[Answered] = field(default_factory=list)
    _rows: int = 0
    """Those that wait or are being written."""
    _writer: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _server: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    _parts: int = 0

    def add(self, answered: Answered) -> None:
        """Remember an answer; it is written within seconds."""
        rows = len(answered.rows)
        if self._rows + rows <= self.most:
            self._rows += rows
            self._waiting.append(answered)
        else:
            self.lost += rows

    async def flush(self) -> None:
        """Write what waits.

        Raises:
            MlAssetsError, OSError: it cannot be written; it waits on.
        """
        taken, self._waiting = self._waiting, []
        run = asyncio.get_running_loop().run_in_executor
        while taken:
            hour = taken[0].moment.strftime(_HOUR)
            of_it = [one for one in taken if one.moment.strftime(_HOUR) == hour]
            try:
                await run(self._writer, self._write, hour, of_it)
            except BaseException:  # a cancelled write may be done: a row that comes twice is one
                self._waiting = [*taken, *self._waiting]
                raise
            self._rows -= sum(len(one.rows) for one in of_it)
            taken = [one for one in taken if one.moment.strftime(_HOUR) != hour]

    def close(self) -> None:
        self._writer.shutdown()

    def _write(self, hour: str, answered: Sequence[Answered]) -> None:
        content = io.BytesIO()
        _frame(answered, self.pipeline.spec.features.key).write_parquet(content)
        self._parts += 1
        part = f"{self._server}-{os.getpid()}-{self._parts:06d}.parquet"
        place = (FOLDER, self.pipeline.name, hour, part)
        self.pipeline.objects.write_bytes(content.getvalue(), *place)


def _frame(answered: Sequence[Answered], names: Sequence[str]) -> "pl.DataFrame":
    """One row for each prediction; values of the key as text, whatever the request calls them.

    One frame for all of them: one for each request holds the interpreter for a second of a busy
    server's five.
    """
    import polars as pl

    rows = [(one, place) for one in answered for place in range(len(one.rows))]
    outputs = dict.fromkeys(name for one in answered for name in one.outputs)

    def values(of: Callable[[Answered], Mapping[str, Sequence[Any]]], name: str) -> list[Any]:
        return [of(one)[name][place] if name in of(one) else None for one, place in rows]

    text = {name: [*map(_text, values(attrgetter("key"), name))] for name in names}
    return pl.DataFrame(
        {
            "moment": pl.Series([one.moment for one, _ in rows], dtype=pl.Datetime("us", "UTC")),
            "request": [one.request for one, _ in rows],
            "row": pl.Series([one.rows[place] for one, place in rows], dtype=pl.Int32),
            "stage": [one.stage for one, _ in rows],
            "model": [one.model for one, _ in rows],
            "seconds": pl.Series([one.seconds for one, _ in rows], dtype=pl.Float64),
            "key": pl.DataFrame(text, schema=dict.fromkeys(names, pl.String)).to_struct("key"),
            **{name: values(attrgetter("outputs"), name) for name in outputs},
        }
    )


def _text(value: object) -> str | None:
    """As UTF-8 has it: half a character, which JSON may hold, would keep the file from being."""
    return None if value is None else str(value).encode(errors="replace").decode()


def parts_of(objects: LocalObjects, pipeline: str, hour: str) -> list[str]:
    """The names of the files of an hour, in their order."""
    folder = objects.path(FOLDER, pipeline, hour)
    return sorted(file.name for file in folder.glob("*.parquet")) if folder.is_dir() else []


def closed_hours(objects: LocalObjects, pipeline: str, now: datetime) -> list[str]:
    """The hours that have files and take no more, oldest first."""
    objects.refresh(f"{FOLDER}/{pipeline}")
    folder = objects.path(FOLDER, pipeline)
    names = [one.name for one in folder.iterdir()] if folder.is_dir() else []
    hours = sorted(name for name in names if _IS_HOUR.fullmatch(name))
    return [h for h in hours if is_closed(h, now) and parts_of(objects, pipeline, h)]


def is_closed(hour: str, now: datetime) -> bool:
    """Return whether nothing comes to an hour any more."""
    begin = datetime.strptime(hour, _HOUR).replace(tzinfo=UTC)
    return now > begin + timedelta(hours=1) + _SETTLED
