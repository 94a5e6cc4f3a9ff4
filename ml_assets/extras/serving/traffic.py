"""Routes each row to the champion, or to the model in canary for its share of the entities.

The hash of an entity decides, so the same model answers the same entity. If the canary cannot
answer, the champion does, and it counts against the canary.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from ml_assets.assets.released_model.predict import named_predictions
from ml_assets.errors import MlAssetsError, counted
from ml_assets.extras.serving.batching import Limits, Predictions
from ml_assets.extras.serving.canary_watch import CanaryWatch
from ml_assets.extras.serving.encoding import Columns
from ml_assets.extras.serving.follow_ledger import Following
from ml_assets.extras.serving.open_inference import Outputs
from ml_assets.extras.serving.prediction_log import Answered, PredictionLog
from ml_assets.extras.serving.served_release import ServedModel, aside
from ml_assets.spec.gates import Target
from ml_assets.spec.rollout import RolloutSpec

_LOOK_SECONDS = 1.0
_DRAW = 10
"""To draw for an entity takes as long as to encode so many values."""
_PATIENCE = 0.2
"""The share of a request's time in which the canary has to answer; the champion gets the rest."""


@dataclass(frozen=True)
class AnsweredRows:
    """Rows of a request that one model answered."""

    served: ServedModel
    stage: Target
    places: Sequence[int]
    found: Predictions
    seconds: float


@dataclass
class Traffic:
    """Shares rows out, watches what the models make of them, and logs it."""

    following: Following
    limits: Limits
    tell: Callable[[str], None]
    log: PredictionLog | None = None
    _watch: CanaryWatch | None = None
    _watched: tuple[str, str] | None = None
    _told: str = field(default="", init=False)

    def __post_init__(self) -> None:
        if self.rollout is not None and self.log is None:
            self.log = PredictionLog(self.following.pipeline)

    @property
    def rollout(self) -> RolloutSpec | None:
        return self.following.pipeline.spec.release.rollout

    async def predict(
        self, columns: Columns, count: int, request: str, version: ServedModel | None = None
    ) -> list[AnsweredRows]:
        """Predict rows by the champion and the canary, and return which model answered which row.

        Args:
            columns: name -> the values of ``count`` rows.
            request: its name; where rows lack their entity, it is their entity.
            version: who is to answer all of them; None: the hash of each entity decides.

        Raises:
            RowsRefused: they are not what the model reads.
            QueueFull: too many rows wait.
            MlAssetsError: the model cannot say.
        """
        mine: list[int] = []
        if version is None and self.following.canary is not None and (rollout := self.rollout):
            work = partial(self._of_canary, rollout, columns, count, request)
            mine = await aside(_DRAW * count, work)
        champion, canary = self.following.served, self.following.canary
        if canary is None or not mine:
            answering = version or champion
            parts = [await self._by(answering, self._stage(answering), columns, range(count))]
        else:
            chosen = frozenset(mine)
            rest = [place for place in range(count) if place not in chosen]
            asked = [self._by(champion, "production", columns, rest)] if rest else []
            asked.append(self._by_canary(canary, champion, columns, mine))
            parts = list(await asyncio.gather(*asked))
        if canary is not None and version is None:
            self._observe(champion, canary, parts)
        if canary is None or version is None:  # a caller would choose what judges the canary
            self._note(parts, columns, request)
        return parts

    async def run(self) -> None:
        """Look at the canary each second and write the log, until cancelled."""
        flushed = time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self._look()
            if self.log and time.monotonic() - flushed > self.log.every:
                flushed = time.monotonic()
                await self._flush(self.log)

    async def _look(self) -> None:
        """Take the canary out where its traffic shows that it is bad."""
        reason = self._watch.reason() if self._watch else None
        canary = self.following.canary
        if reason and canary and self._watched and self._watched[1] == canary.digest:
            self._watch = self._watched = None
            await self.following.abort(canary, f"in its traffic as canary: {reason}")

    async def end(self) -> None:
        """Write the rest of the log."""
        if self.log is not None:
            await self._flush(self.log)
            self.log.close()

    async def _flush(self, log: PredictionLog) -> None:
        try:
            await log.flush()
            self._told = ""
            if log.lost:
                self.tell(
                    f"{counted(log.lost, 'row', 'are')} not in the prediction log: while it could"
                    f" not be written, {log.most:,} others waited"
                )
                log.lost = 0
        except Exception as error:  # a store that is away silences no server
            if self._told != repr(error):
                self.tell(f"the prediction log waits: {error}")
            self._told = repr(error)

    def _stage(self, served: ServedModel) -> Target:
        return "canary" if served is self.following.canary else "production"

    def _of_canary(
        self, rollout: RolloutSpec, columns: Columns, count: int, request: str
    ) -> list[int]:
        """The places of the rows whose entity is the canary's."""
        name = self.following.pipeline.name
        given = [columns.get(column) for column in rollout.entity]
        entities: list[Sequence[object]] = [[request]] * count
        if all(values is not None for values in given):
            entities = [list(row) for row in zip(*(v for v in given if v is not None), strict=True)]
        return [n for n, entity in enumerate(entities) if draw(name, entity) < rollout.share]

    async def _by(
        self, served: ServedModel, stage: Target, columns: Columns, places: Sequence[int]
    ) -> AnsweredRows:
        whole = isinstance(places, range)
        taken = columns if whole else _rows(columns, places)
        began = time.perf_counter()
        found = await served.predict(taken, len(places))
        return AnsweredRows(served, stage, places, found, time.perf_counter() - began)

    async def _by_canary(
        self, canary: ServedModel, champion: ServedModel, columns: Columns, places: Sequence[int]
    ) -> AnsweredRows:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self.limits.seconds * _PATIENCE):
                return await self._by(canary, "canary", columns, places)
        except (MlAssetsError, TimeoutError):
            waited = time.perf_counter() - began
            instead = await self._by(champion, "production", columns, places)
            self._watch_of(champion, canary).canary.could_not(len(places), waited)
            self.following.metrics.canary_errors.inc(len(places))
            return instead

    def _observe(
        self, champion: ServedModel, canary: ServedModel, parts: Sequence[AnsweredRows]
    ) -> None:
        watch = self._watch_of(champion, canary)
        for part in parts:
            by_canary = part.stage == "canary"
            seen = watch.canary.answered if by_canary else watch.champion_answered
            seen(part.found, part.seconds)

    def _watch_of(self, champion: ServedModel, canary: ServedModel) -> CanaryWatch:
        """What was seen of these two; it begins again where one of them is another."""
        both = (champion.digest, canary.digest)
        if self._watch is None or self._watched != both:
            assert self.rollout is not None
            task = self.following.pipeline.spec.label.task
            of = self.rollout
            self._watch, self._watched = CanaryWatch(of.abort, task, share=of.share), both
        return self._watch

    def _note(self, parts: Sequence[AnsweredRows], columns: Columns, request: str) -> None:
        if self.log is None:
            return
        names = self.following.pipeline.spec.features.key
        key = {name: columns[name] for name in names if name in columns}
        for part in parts:
            mine = _rows(key, part.places)
            plain = {n: v if isinstance(v, list) else v.tolist() for n, v in outputs(part).items()}
            self.log.add(
                Answered(
                    datetime.now(UTC),
                    request,
                    part.places,
                    part.stage,
                    part.served.digest,
                    part.seconds,
                    mine,
                    plain,
                )
            )


def draw(pipeline: str, entity: Sequence[object]) -> float:
    """Return where an entity stands between 0 and 1: always the same, whoever asks, and evenly
    spread.

    A number is the same as 7 and as 7.0: protocols differ in how they send it. A time that the
    server looked up is drawn by its text.
    """
    plain = [int(v) if isinstance(v, float) and v.is_integer() else v for v in entity]
    digest = hashlib.sha256(json.dumps([pipeline, *plain], default=str).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def outputs(part: AnsweredRows) -> Outputs:
    """Return what a part's rows were answered, by the outputs' names."""
    return named_predictions(part.found, part.served.release.manifest)


def together(parts: Sequence[AnsweredRows], count: int) -> Outputs:
    """The outputs of all rows of a request, in their order."""
    if len(parts) == 1:
        return outputs(parts[0])
    found: dict[str, Any] = {}
    for part in parts:
        for name, values in outputs(part).items():
            words = isinstance(values, list)
            into = found.setdefault(name, [""] * count if words else np.zeros(count))
            for place, value in zip(part.places, values, strict=True):
                into[place] = value
    return found


def _rows(columns: Mapping[str, Sequence[object]], places: Sequence[int]) -> dict[str, list[Any]]:
    return {name: [values[place] for place in places] for name, values in columns.items()}
