"""The request bodies and response pages of the API."""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ml_assets.spec.gates import Stage

Text = Annotated[str, StringConstraints(min_length=1, max_length=200)]
T = TypeVar("T")


class Shape(BaseModel):
    """A body: nothing unknown in it, and no number out of a text."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True
    )


class RunOverrides(Shape):
    """Holds what a run is asked for besides its spec."""

    data_source: Text | None = None
    """A source of the spec: which ones a run reads is not the caller's to choose."""
    model_type: Text | None = None
    """The family of the spec's model."""
    hyperparams: dict[Text, Any] = Field(default_factory=dict, max_length=100)
    """The epochs may be others than the spec's; whatever else is named has to be as it says."""
    resources: dict[Text, Any] = Field(default_factory=dict, max_length=100)
    """What is named of the cluster has to be as the spec says."""


class RunRequest(Shape):
    """A run of a pipeline's model: trained, judged, and released where the gates let it pass."""

    pipeline_id: Text
    """The name of the pipeline, as its spec says."""
    config: RunOverrides = RunOverrides()
    """What this run has other than the spec; nothing: the spec as it is."""


class RunLaunched(Shape):
    """A run that Dagster has taken."""

    run_id: str
    pipeline_id: str
    status: Literal["queued", "launched before"]
    url: str
    """Its page in Dagster."""


class RegisterRequest(Shape):
    """A model that was made elsewhere, to be judged like any other."""

    name: Text
    """The pipeline whose gates judge it."""
    version: Text
    """What its makers call it."""
    artifact_uri: Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    """The folder with model.json and its weights (safetensors, or trees as text or JSON), below
    a place of ML_ASSETS_REGISTER_FROM."""
    metrics: dict[Text, Annotated[float, Field(allow_inf_nan=False)]] = Field(
        default_factory=dict, max_length=100
    )
    """What its makers claim: kept as claims; the gates measure."""
    stage: Literal["staging", "canary", "production", "none"] = "none"
    """Where its gates may lead it; none: it is judged, and not moved."""


class ModelRegistered(Shape):
    """The outcome of the request."""

    name: str
    version: str
    """The digest of its model.json, which names its weights."""
    registered_as: str
    status: Literal["being judged", "registered before"]
    run_id: str
    """The Dagster run that judges it."""
    url: str
    ledger_line: int


class StageRequest(Shape):
    """Says where a model version is asked to go."""

    stage: Stage
    """Where to: the stage that the pipeline releases to, or its canary; archived: out of a stage on
    the way there."""
    reason: Text = "asked for through the API"
    """Why; the ledger has it beside the caller's name."""


class StageMoved(Shape):
    """The outcome of the request."""

    name: str
    version: str
    stage: str
    status: Literal["there already", "moved", "being released"]
    run_id: str | None = None
    """The Dagster run that releases it: it holds the model to all that a release asks for."""
    ledger_line: int | None = None


class Page(Shape, Generic[T]):
    """A page of a list; `next` is the `after` of the next page, null on the last."""

    items: list[T]
    next: str | None


class Problem(Shape):
    """One mistake of a request."""

    field: str
    said: str
    """What is wrong, and how to mend it."""


class Refusal(Shape):
    """The reason why a request was refused."""

    error: str
    problems: list[Problem] = Field(default_factory=list)
