"""The routes of the server: the Open Inference Protocol, rows by column name, metrics."""

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect

from ml_assets.adapters.same_origin import LOOPBACK
from ml_assets.errors import MlAssetsError, RowsRefused, SpecError, counted
from ml_assets.extras.serving import open_inference
from ml_assets.extras.serving.access import Access
from ml_assets.extras.serving.batching import Limits, QueueFull
from ml_assets.extras.serving.encoding import Columns
from ml_assets.extras.serving.follow_ledger import Following
from ml_assets.extras.serving.metrics import Metrics
from ml_assets.extras.serving.served_release import ServedModel, aside
from ml_assets.extras.serving.traffic import AnsweredRows, Traffic, together
from ml_assets.records.load_release import doubts

if TYPE_CHECKING:
    from ml_assets.extras.online.features import Features

_REQUEST = "x-request-id"
_IS_NAME = re.compile(r"[\x21-\x7e]{1,100}")
_SHOWN = 200
"""Characters of a path that a refusal repeats."""
_MORE = 100
"""Unknown columns at which a refusal still looks; with more of them the rows are not laid out."""


class NotHere(MlAssetsError):
    """There is no such model or version."""


class TooLarge(MlAssetsError):
    """A request is larger than the server takes on."""


class NotUnderstood(MlAssetsError):
    """A body is compressed, or of another kind."""


class BodiesFull(MlAssetsError):
    """The bodies that are arriving are as large together as the server takes on."""


_STATUS: dict[type[MlAssetsError], int] = {
    RowsRefused: 400,
    SpecError: 400,
    NotHere: 404,
    TooLarge: 413,
    NotUnderstood: 415,
    QueueFull: 429,
    BodiesFull: 429,
}
"""The status of an error; any other one of ours is 503: the next request may succeed."""


@dataclass
class Server:
    """The routes and what they answer from."""

    following: Following
    traffic: Traffic
    limits: Limits
    metrics: Metrics
    draining: bool = False
    _arriving: int = 0
    """Bytes of bodies that have come and are not read yet, of all requests together."""
    _online: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    """One thread looks entities up: an online store is for one."""
    _opened: "tuple[object, Features] | None" = None

    @property
    def name(self) -> str:
        return self.following.pipeline.name

    def app(self, tokens: Sequence[str]) -> FastAPI:
        """The application; ``tokens``: any of them lets a request in, none: every request."""
        app = FastAPI(
            title=f"ml_assets: {self.name}",
            version=version("ml_assets"),
            docs_url=None,
            redoc_url=None,
        )
        app.add_middleware(
            Access, tokens=tokens, metrics=self.metrics, draining=lambda: self.draining
        )
        if not tokens:  # a name of another site may lead to this machine
            app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*LOOPBACK, "[::1]"])
        app.exception_handler(MlAssetsError)(_refused)
        app.exception_handler(TimeoutError)(_too_late)
        app.exception_handler(ClientDisconnect)(_gone)
        app.exception_handler(HTTPException)(self.nothing)
        model = f"/v2/models/{self.name}"
        for path in (model, f"{model}/versions/{{version}}"):
            app.get(path)(self.metadata)
            app.get(f"{path}/ready")(self.model_ready)
            app.post(f"{path}/infer")(self.infer)
        app.get("/v2")(self.server)
        app.get("/v2/health/live")(self.live)
        app.get("/v2/health/ready")(self.ready)
        app.post("/predict", openapi_extra=_PREDICT)(self.predict)
        app.get("/metrics")(self.counted)
        return app

    # --- the Open Inference Protocol ----------------------------------------------------------

    async def server(self) -> Response:
        """Name, version and extensions of the server."""
        known = {"name": "ml_assets", "version": version("ml_assets")}
        return JSONResponse({**known, "extensions": list(open_inference.EXTENSIONS)})

    async def live(self) -> Response:
        """200: the process answers."""
        return JSONResponse({"live": True})

    async def ready(self) -> Response:
        """200: a verified release answers, and it is not about to end."""
        ready = self.following.ready and not self.draining
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    async def model_ready(self, version: str | None = None) -> Response:
        """200: this version answers."""
        served = self._served(version)
        return JSONResponse({"name": self.name, "version": served.version, "ready": True})

    async def metadata(self, version: str | None = None) -> Response:
        """Inputs and outputs of the model."""
        served = self._served(version)
        answering = [served, self.following.canary] if version is None else [served]
        versions = [one.version for one in answering if one is not None]
        manifest = served.release.manifest
        return JSONResponse(open_inference.model_metadata(self.name, versions, manifest))

    async def infer(self, request: Request, version: str | None = None) -> Response:
        """Tensors in, tensors out."""
        async with asyncio.timeout(self.limits.seconds):
            served = self._served(version)
            length = request.headers.get(open_inference.HEADER_LENGTH)
            async with self._body(request) as body:
                asked = await aside(len(body), lambda: open_inference.read_inference(body, length))
            name = _name_of(request, asked.id)
            pinned = served if version is not None else None
            parts = await self._predicted(name, asked.columns, asked.rows, pinned)
        by_canary, version = _canary_of(parts), parts[0].served.version
        said = {"canary": _said_of(by_canary)} if by_canary and len(parts) > 1 else {}
        content, head = await aside(
            _size(parts),
            lambda: open_inference.write_inference(
                asked, self.name, version, together(parts, asked.rows), said
            ),
        )
        if head is None:
            return Response(content, media_type="application/json")
        headers = {open_inference.HEADER_LENGTH: str(head)}
        return Response(content, headers=headers, media_type="application/octet-stream")

    async def nothing(self, request: Request, error: Exception) -> Response:
        """Return what is not there, in the form of every other error."""
        assert isinstance(error, HTTPException)
        known = f"The one model is {self.name!r}: POST /predict, or /v2/models/{self.name}/infer."
        path = request.url.path[:_SHOWN]
        said = f"There is no {path} here. {known}"
        if error.status_code == 405:
            said = f"{request.method} is not allowed at {path}. {known}"
        return _answer(said, error.status_code, error.headers)

    # --- rows by column name ------------------------------------------------------------------

    async def predict(self, request: Request) -> Response:
        """Predictions of feature rows, or of entities whose features lie in the online store."""
        async with asyncio.timeout(self.limits.seconds):
            served = self._served(None)
            async with self._body(request) as body:
                asked = await aside(len(body), lambda: open_inference.read_document(body))
            rows = await self._rows(asked)
            name = _name_of(request)
            there = [n for n, row in enumerate(rows) if row is not None]
            parts = await self._by_row(name, [row for row in rows if row is not None])
        champion = next((part.served for part in parts if part.stage != "canary"), served)
        release, by_canary = champion.release, _canary_of(parts)
        known = {"pipeline": self.name, "model": release.model.digest, "version": champion.version}
        said = " ".join(doubts(release))
        noted: dict[str, Any] = {"note": said} if said else {}
        if by_canary:
            noted["canary"] = _said_of(by_canary, there)

        def answer() -> Response:
            answers = dict(zip(there, _by_place(parts, len(there)), strict=True))
            predictions = [answers.get(n) for n in range(len(rows))]
            said = {**known, "ledger_line": release.entry.seq, **noted, "predictions": predictions}
            return JSONResponse(said, headers={_REQUEST: name})

        return await aside(_size(parts), answer)

    async def _rows(self, asked: Any) -> Sequence[dict[str, Any] | None]:
        """Feature rows; None for an entity that has none."""
        kind = next(iter(asked)) if isinstance(asked, dict) and len(asked) == 1 else None
        given = asked[kind] if kind in ("rows", "entities") else None
        self._require_room(len(given) if isinstance(given, list) else 0)
        if not isinstance(given, list) or not all(isinstance(row, dict) for row in given):
            raise RowsRefused(
                'Send {"rows": [{column: value}]} or {"entities": [{column: value}]}.'
            )
        if not given:
            raise RowsRefused(f"The list of {kind} is empty: send at least one.")
        if kind == "rows":
            return given
        run = asyncio.get_running_loop().run_in_executor
        found = await run(self._online, lambda: self._features().look_up_many(given))
        return [row and {**entity, **row} for entity, row in zip(given, found, strict=True)]

    def _features(self) -> "Features":
        """Opened anew where a line or a recall has come: they may be recalled."""
        from ml_assets.extras.online.features import features_of  # where entities are asked for

        noticed = self.following.noticed
        if self._opened is None or self._opened[0] != noticed:
            self._opened = (noticed, features_of(self.following.pipeline))
        return self._opened[1]

    async def _by_row(self, request: str, rows: Sequence[dict[str, Any]]) -> list[AnsweredRows]:
        if not rows:
            return []
        most, names = 2 * self._served(None).encoder.columns + _MORE, dict[str, None]()
        for row in rows:
            names.update(dict.fromkeys(row))
            if len(names) > most:
                raise TooLarge(
                    f"The rows name {counted(len(names), 'column')} and more: send the model's."
                )
        size = len(names) * len(rows)
        columns = await aside(size, lambda: {n: [row.get(n) for row in rows] for n in names})
        return await self._predicted(request, columns, len(rows), None)

    # --- both ---------------------------------------------------------------------------------

    async def counted(self) -> Response:
        """The metrics, for Prometheus."""
        if self.following.ready:
            served = self.following.served
            self.metrics.waiting.set(served.batcher.rows)
            self.metrics.restarts.set(served.warm.restarts)
        return Response(generate_latest(self.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    def _served(self, version: str | None) -> ServedModel:
        """The release that answers; a version may be named by the beginning of its digest."""
        served, canary = self.following.served, self.following.canary
        for one in (served, canary) if version is not None else (served,):
            short = version is not None and len(version) < len(served.version)
            if one is not None and not short and one.digest.startswith(version or ""):
                return one
        raise NotHere(f"There is no version {version!r:.60} here; {served.version} answers.")

    async def _predicted(
        self, request: str, columns: Columns, count: int, pinned: ServedModel | None
    ) -> list[AnsweredRows]:
        self._require_room(count)
        return await self.traffic.predict(columns, count, request, pinned)

    def _require_room(self, rows: int) -> None:
        if rows > self.limits.queue_rows:
            raise TooLarge(
                f"The request has {counted(rows, 'row')}; at most {self.limits.queue_rows} are"
                " accepted: send fewer."
            )

    @asynccontextmanager
    async def _body(self, request: Request) -> AsyncIterator[bytes]:
        """A body, which counts among those that arrive until it is read."""
        if request.headers.get("content-encoding", "identity") != "identity":
            raise NotUnderstood("The body is compressed: send it uncompressed.")
        body, size, kept = bytearray(), 0, True
        try:
            async for chunk in request.stream():
                size += len(chunk)
                if size > self.limits.body_bytes:
                    raise TooLarge(f"The body has more than {self.limits.body_bytes:,} bytes.")
                kept = kept and self._arriving + len(chunk) <= self.limits.arriving_bytes
                self._arriving += len(chunk) if kept else -len(body)
                if kept:
                    body += chunk
                else:  # what still comes is let go: a client that is cut off reads no answer
                    body.clear()
            if not kept:
                raise BodiesFull(
                    f"More than {self.limits.arriving_bytes:,} bytes of bodies arrive at once: try"
                    " again in a moment."
                )
            yield bytes(body)
        finally:
            self._arriving -= len(body)


def _name_of(request: Request, said: str | None = None) -> str:
    """What the caller calls a request, in its body or its header; else a name of our own."""
    given = said or request.headers.get(_REQUEST, "")
    return given if _IS_NAME.fullmatch(given) else uuid.uuid4().hex


def _size(parts: Sequence[AnsweredRows]) -> int:
    """How many numbers an answer has."""
    return sum(part.found.size for part in parts)


def _canary_of(parts: Sequence[AnsweredRows]) -> AnsweredRows | None:
    return next((part for part in parts if part.stage == "canary"), None)


def _said_of(by_canary: AnsweredRows, places: Sequence[int] | None = None) -> dict[str, Any]:
    """Which rows of an answer are the canary's.

    Args:
        places: of the rows that were asked for, where some have no answer.
    """
    rows = [places[n] if places else n for n in by_canary.places]
    return {"version": by_canary.served.version, "rows": rows}


def _by_place(parts: Sequence[AnsweredRows], count: int) -> list[dict[str, Any]]:
    """The outputs of each row, by name."""
    if not parts:
        return []
    plain = {n: v if isinstance(v, list) else v.tolist() for n, v in together(parts, count).items()}
    return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]


async def _refused(_request: Request, error: Exception) -> Response:
    kinds = (code for kind, code in _STATUS.items() if isinstance(error, kind))
    status = next(kinds, 503)
    return _answer(str(error), status, {"retry-after": "1"} if status in (429, 503) else None)


def _answer(said: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    body = json.dumps({"error": said}, ensure_ascii=False)
    return Response(body.encode("utf-8", "backslashreplace"), status, headers, "application/json")


async def _gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it; it is counted


async def _too_late(_request: Request, _error: Exception) -> Response:
    said = "The answer took too long: the server is busy, or the body came too slowly."
    return _answer(said, 503, {"retry-after": "1"})


_COLUMNS = {"type": "array", "minItems": 1, "items": {"type": "object"}}
_PREDICT: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "oneOf": [
                        {"type": "object", "properties": {kind: _COLUMNS}, "required": [kind]}
                        for kind in ("rows", "entities")
                    ]
                }
            }
        },
    }
}
