"""The routes of the API. A route reads or asks; other modules decide what is allowed."""

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version as version_of
from typing import Annotated, Any

from fastapi import FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from ml_assets.adapters.runs import PIPELINE_TAG, TRIGGER_TAG
from ml_assets.adapters.served_dagster import launch, run_status, tagged_run
from ml_assets.errors import (
    EvidenceError,
    MlAssetsError,
    Recalled,
    SpecError,
    UnknownModel,
    UnknownRun,
)
from ml_assets.extras.api import lists
from ml_assets.extras.api.access import Bodies, Caller, Operator, Reader
from ml_assets.extras.api.overrides import NotAllowed, run_config
from ml_assets.extras.api.shapes import (
    ModelRegistered,
    Page,
    Problem,
    Refusal,
    RegisterRequest,
    RunLaunched,
    RunRequest,
    StageMoved,
    StageRequest,
)
from ml_assets.extras.api.stages import ASKED_BY, move, register_model
from ml_assets.records.tracking.links import Links
from ml_assets.reports.page import page
from ml_assets.settings import Settings
from ml_assets.spec.load import pipeline_folders
from ml_assets.store.pipeline_context import Pipeline, open_pipeline

V1 = "/api/v1"
_SHOWN = 200
"""Characters of a path that a refusal repeats."""
KEY_TAG, BODY_TAG = "ml_assets/idempotency_key", "ml_assets/idempotency_body"
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
After = Annotated[str | None, Query(max_length=200, description="The `next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=200)]
Document = dict[str, Any]


class NotHere(MlAssetsError):
    """There is no such pipeline, experiment or run."""


class OtherBody(MlAssetsError):
    """An idempotency key was used before, for something else."""


_STATUS: Mapping[type[Exception], int] = {
    NotHere: 404,
    UnknownModel: 404,
    UnknownRun: 404,
    lists.NoSuchPage: 422,
    EvidenceError: 409,
    Recalled: 409,
    OtherBody: 409,
}
"""The status of an error; any other one of ours is 503: the next request may succeed."""
_REFUSALS: dict[int | str, dict[str, Any]] = {
    code: {"model": Refusal} for code in (400, 401, 403, 404, 408, 409, 413, 422, 503)
}


@dataclass
class Api:
    """The routes, over the state that the settings name."""

    settings: Settings
    _launching: threading.Lock = field(default_factory=threading.Lock)

    def app(self, callers: Mapping[str, Caller]) -> FastAPI:
        """The application; ``callers``: token -> who holds it."""
        app = FastAPI(
            title="ml_assets",
            version=version_of("ml_assets"),
            description="Runs, experiments, models and their stages. It can do nothing that the"
            " gates forbid.",
            responses=_REFUSALS,
            docs_url=None,  # that page would load its scripts from elsewhere
            redoc_url=None,
        )
        app.state.callers = callers
        app.add_middleware(Bodies)
        for kind, answer in (
            (MlAssetsError, _refused),
            (NotAllowed, _not_allowed),
            (RequestValidationError, _no_such_shape),
            (HTTPException, _stopped),
        ):
            app.add_exception_handler(kind, answer)
        app.get("/docs", include_in_schema=False)(lambda: _described(app))
        app.get(f"{V1}/pipelines")(self.pipelines)
        app.post(f"{V1}/pipelines/runs", status_code=202)(self.launch)
        app.get(f"{V1}/pipelines/runs/{{run_id}}")(self.launched)
        app.get(f"{V1}/experiments")(self.experiments)
        app.get(f"{V1}/experiments/{{experiment_id}}")(self.experiment)
        app.get(f"{V1}/experiments/{{experiment_id}}/runs")(self.runs)
        app.get(f"{V1}/experiments/{{experiment_id}}/runs/{{run_id}}")(self.run)
        app.post(f"{V1}/models/register", status_code=202)(self.register)
        app.get(f"{V1}/models/{{name}}/versions")(self.model_versions)
        app.get(f"{V1}/models/{{name}}/versions/{{version}}")(self.model_version)
        app.put(f"{V1}/models/{{name}}/versions/{{version}}/stage")(self.stage)
        return app

    # --- runs ---------------------------------------------------------------------------------

    def launch(
        self, asked: RunRequest, caller: Operator, response: Response, key: Key = None
    ) -> RunLaunched:
        """Launch a run of a pipeline's model: trained, judged, released where the gates let it.

        With an Idempotency-Key the same request launches one run, however often it is sent.
        """
        pipeline = self._pipeline(asked.pipeline_id)
        config = run_config(pipeline, asked.config)
        tags = {PIPELINE_TAG: pipeline.name, TRIGGER_TAG: "api", ASKED_BY: caller.name}
        with self._launching:  # a key that comes twice at once finds the first one's run
            before = self._launched_before(asked, caller, key, tags)
            if before is not None:
                response.status_code = 200
                return before
            job = f"{pipeline.name}__refresh"
            run = launch(self.settings.ui_url, job, config, tags)
        return self._said(run, pipeline.name, "queued")

    def launched(self, run_id: str, _caller: Reader) -> Document:
        """Return how a run fares in Dagster."""
        found = run_status(run_id)
        if found is None:
            raise NotHere(f"Dagster has no run {run_id[:80]!r}.")
        return {**found, "url": Links.of(self.settings).run(run_id)}

    # --- lists --------------------------------------------------------------------------------

    def pipelines(self, _caller: Reader, after: After = None, limit: Limit = 50) -> Page[Document]:
        """The pipelines, by name."""
        return lists.pipelines(self.settings, after, limit)

    def experiments(
        self, _caller: Reader, after: After = None, limit: Limit = 50
    ) -> Page[Document]:
        """The experiments, by name: one for each pipeline."""
        names, more = lists.page(sorted(pipeline_folders(self.settings)), str, after, limit)
        return Page(items=[lists.experiment(self._pipeline(name)) for name in names], next=more)

    def experiment(self, experiment_id: str, _caller: Reader) -> Document:
        """One experiment."""
        return lists.experiment(self._pipeline(experiment_id))

    def runs(
        self, experiment_id: str, _caller: Reader, after: After = None, limit: Limit = 50
    ) -> Page[Document]:
        """The runs of an experiment, newest first."""
        return lists.runs(self._pipeline(experiment_id), after, limit)

    def run(self, experiment_id: str, run_id: str, _caller: Reader) -> Document:
        """One run: what it was asked for, made from, measured, and came to."""
        return lists.run(self._pipeline(experiment_id), run_id)

    def model_versions(
        self, name: str, _caller: Reader, after: After = None, limit: Limit = 50
    ) -> Page[Document]:
        """The versions of a pipeline's model, newest first."""
        return lists.model_versions(self._pipeline(name), after, limit)

    def model_version(self, name: str, version: str, _caller: Reader) -> Document:
        """One version: its stage, the decision on it with every gate, its moves."""
        return lists.model_version(self._pipeline(name), version)

    def register(
        self, asked: RegisterRequest, caller: Operator, response: Response
    ) -> ModelRegistered:
        """Have a model judged that was made elsewhere; the same request again changes nothing.

        Its files are checked and kept; a Dagster run scores it on the holdout and asks the gates.
        """
        pipeline = self._pipeline(asked.name)
        with self._launching:
            done = register_model(pipeline, asked, caller.name)
        if done.status == "registered before":
            response.status_code = 200
        return done

    # --- stages -------------------------------------------------------------------------------

    def stage(
        self, name: str, version: str, asked: StageRequest, caller: Operator, response: Response
    ) -> StageMoved:
        """Ask for a version to be in a stage; 409 with the gates' reasons where it may not.

        A version that was there before comes back at once (a rollback, in the caller's name). A new
        one is released by a Dagster run, which holds it to all that a release asks for: 202.
        """
        moved = move(self._pipeline(name), version, asked, caller.name)
        if moved.status == "being released":
            response.status_code = 202
        return moved

    # --- what they share ----------------------------------------------------------------------

    def _pipeline(self, name: str) -> Pipeline:
        """A pipeline by its name, which is one of those that there are and never a path."""
        try:
            if re.fullmatch(r"\w{1,100}", name, re.ASCII):
                return open_pipeline(name, self.settings)
        except SpecError as error:
            if name in pipeline_folders(self.settings):
                raise
            raise NotHere(str(error)) from error
        raise NotHere(f"There is no pipeline {name[:100]!r}.")

    def _launched_before(
        self, asked: RunRequest, caller: Caller, key: str | None, tags: dict[str, str]
    ) -> RunLaunched | None:
        """The run of the same key; else the tags get the key, and what it is for."""
        if key is None:
            return None
        told = json.dumps([caller.name, key]).encode()
        body = hashlib.sha256(asked.model_dump_json().encode()).hexdigest()
        tags |= {KEY_TAG: hashlib.sha256(told).hexdigest(), BODY_TAG: body}
        found = tagged_run(KEY_TAG, tags[KEY_TAG])
        if found is None:
            return None
        run, its = found
        if its.get(BODY_TAG) != body:
            raise OtherBody(
                f"Run {run} was launched with this Idempotency-Key and another body: use a new key."
            )
        return self._said(run, asked.pipeline_id, "launched before")

    def _said(self, run: str, pipeline: str, status: Any) -> RunLaunched:
        url = Links.of(self.settings).run(run)
        return RunLaunched(run_id=run, pipeline_id=pipeline, status=status, url=url)


def _described(app: FastAPI) -> Response:
    """The routes and the bodies, on one page."""
    bodies = ("RunRequest", "RunOverrides", "RegisterRequest", "StageRequest")
    return HTMLResponse(page("api.html", document=app.openapi(), bodies=bodies))


async def _refused(_request: Request, error: Exception) -> Response:
    codes = (code for kind, code in _STATUS.items() if isinstance(error, kind))
    return _answer(next(codes, 503), str(error))


async def _not_allowed(_request: Request, error: Exception) -> Response:
    assert isinstance(error, NotAllowed)
    return _answer(422, "The request asks for something that is not allowed.", error.problems)


async def _no_such_shape(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = [
        Problem(field=".".join(map(str, one["loc"])), said=f"{one['msg']}.")
        for one in error.errors()
    ]
    return _answer(422, "The request is not of the shape that /docs describes.", problems)


async def _stopped(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path, said = request.url.path[:_SHOWN], error.detail
    if error.status_code == 404:
        said = f"There is no {path} here: /docs has the routes."
    if error.status_code == 405:
        said = f"{request.method} is not allowed at {path}: /docs has the routes."
    return _answer(error.status_code, said, headers=error.headers)


def _answer(
    status: int,
    said: str,
    problems: list[Problem] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    body = Refusal(error=said, problems=problems or []).model_dump()
    said = json.dumps(body, ensure_ascii=False)
    return Response(said.encode("utf-8", "backslashreplace"), status, headers, "application/json")
