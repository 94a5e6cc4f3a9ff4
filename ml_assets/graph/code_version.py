"""Computes the code version of a stage: of the code it runs and the spec that decides it."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import BaseModel

from ml_assets.errors import SpecError
from ml_assets.graph.stage_code import function_code, stage_code
from ml_assets.spec.base import digest_of
from ml_assets.spec.drift import DriftSpec
from ml_assets.spec.ensemble import weights_file
from ml_assets.spec.features import FeaturesSpec
from ml_assets.spec.gates import FunctionBaseline, ReleaseSpec
from ml_assets.spec.leaks import FutureEvents, LeaksSpec
from ml_assets.spec.network_code import read_network
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.split import groups_of
from ml_assets.spec.stages import DRIFT_STAGE, ONLINE_STAGE, PREDICTIONS_STAGE, SEARCH_STAGE
from ml_assets.spec.study_record import parted_by
from ml_assets.spec.training import Module, TrainingSpec
from ml_assets.spec.training_program.identity import Program
from ml_assets.store.pipeline_context import Pipeline


def code_version_of(pipeline: Pipeline, stage: str, source: str | None = None) -> str:
    """Digest of the part of the spec and of the code that decide this stage's content."""
    engine = pipeline.spec.features.engine
    kind = pipeline.spec.sources[source].kind if stage == "raw_snapshot" and source else ""
    kind = engine.kind if stage == "feature_set" and engine else kind
    return digest_of(
        {
            "spec": _plain(_spec_part(pipeline, stage, source)),
            "code": stage_code(stage, kind),
            "files": file_digests(pipeline, stage, source),
        }
    )[:16]


def trained_by(pipeline: Pipeline, program: Program | None) -> str:
    """The code version of a model; of an older program (None: that of here) it is another."""
    here = code_version_of(pipeline, "trained_model")
    return here if program is None else digest_of([here, program.digest])[: len(here)]


_NO_OTHER_STUDY = {
    "adopt": False,
    "parallel": None,
    "schedule": None,
    "after_refusals": None,
    "queue": None,
    "queue_priority": None,
}
"""Who takes the winner, where and how many trials run at once, and when it is asked for is no other
study."""


def _spec_part(pipeline: Pipeline, stage: str, source: str | None) -> object:
    spec, name = pipeline.spec, source or ""
    if stage in ("raw_snapshot", "validated_table"):
        table = spec.sources.get(name)
        # how old it may get, or is looked at, changes nothing in it
        return table and table.model_copy(update={"freshness": None, "settled": None})
    if stage == "derived_table":
        return [spec.tables.get(name), spec.partitions]
    if stage == SEARCH_STAGE:
        declared, search = pipeline.declared.spec, pipeline.search
        study = search and search.model_copy(update=_NO_OTHER_STUDY)
        # a winner is adopted under its own split alone, even where another has the same rows
        return [study, declared.model, _training(declared), parted_by(declared)]
    return _PARTS[stage](spec)


def _features(spec: PipelineSpec) -> FeaturesSpec:
    """The subject and the engine change no feature."""
    return spec.features.model_copy(update={"subject": None, "engine": None})


def _training(spec: PipelineSpec) -> TrainingSpec:
    """A profile only measures: the model stays the same."""
    return spec.training.model_copy(update={"profile": None})


def _release(spec: PipelineSpec) -> ReleaseSpec:
    """How traffic is shared out does not change the policy."""
    return spec.release.model_copy(update={"rollout": None})


def _guards(spec: PipelineSpec) -> LeaksSpec:
    """``future_events`` is checked at feature_set, not here."""
    return spec.leaks.model_copy(update={"future_events": FutureEvents()})


_PARTS: Mapping[str, Callable[[PipelineSpec], object]] = {
    "feature_set": lambda spec: [
        _features(spec),
        spec.label,
        spec.partitions,
        spec.leaks.future_events,
        groups_of(spec.split),
    ],
    "online_features": lambda spec: [spec.online, spec.features.key, spec.features.decision_at],
    "training_set": lambda spec: [
        _features(spec),
        spec.label,
        spec.split,
        _guards(spec),
        parted_by(spec),
    ],
    "checkpoints": lambda spec: [spec.model, _training(spec)],
    "trained_model": lambda spec: [spec.model, _training(spec)],
    "evaluation_report": lambda spec: [spec.evaluation, *spec.gates, *_slices(spec.drift)],
    "released_model": lambda spec: [_release(spec), *spec.gates],
    "canary_report": lambda spec: [spec.evaluation, _release(spec), *spec.gates],
    "promoted_model": lambda spec: [_release(spec), *spec.gates],
    ONLINE_STAGE: lambda spec: [spec.label, spec.evaluation.block, spec.evaluation.slices],
    PREDICTIONS_STAGE: lambda spec: [spec.features.key],
    # whether it trains does not touch what it says
    DRIFT_STAGE: lambda spec: spec.drift and spec.drift.model_copy(update={"retrain": None}),
}


def _slices(drift: DriftSpec | None) -> list[object]:
    """What the baseline of drift is cut by, where it is not by partitions."""
    return [drift.size] if drift and (drift.every or drift.rows) else []


def file_digests(pipeline: Pipeline, stage: str, source: str | None) -> dict[str, str]:
    """The digest of each of the team's contracts, functions and files that decide a stage."""
    if stage == "validated_table" and source:
        contract = pipeline.spec.sources[source].contract
        return {contract: contract_digest(pipeline.folder / contract)} if contract else {}
    if stage == "derived_table" and source:
        function = pipeline.spec.tables[source].function
        return {function: function_code(pipeline.folder, function)}
    if stage == "feature_set":
        features = pipeline.spec.features
        functions = [features.function, *([features.decode.function] if features.decode else [])]
        return {function: function_code(pipeline.folder, function) for function in functions}
    if stage == "evaluation_report":
        rules = {
            one.function
            for one in pipeline.spec.evaluation.baselines
            if isinstance(one, FunctionBaseline)
        }
        return {function: function_code(pipeline.folder, function) for function in rules}
    if stage in ("checkpoints", "trained_model"):
        return {**_network_digest(pipeline), **_initial_digest(pipeline)}
    return {}


def _network_digest(pipeline: Pipeline) -> dict[str, str]:
    """The digest of a team's own network; nothing where its code cannot be read (training says)."""
    model = pipeline.spec.model
    if not isinstance(model, Module):
        return {}
    try:
        return {model.module: read_network(pipeline.folder, model).digest}
    except SpecError:
        return {model.module: ""}


def _initial_digest(pipeline: Pipeline) -> dict[str, str]:
    begin = weights_file(pipeline.spec.training.init_from)
    return {begin.path: begin.sha256} if begin else {}


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes; of nothing where there is no such file (reading it says so)."""
    return hashlib.sha256(path.read_bytes() if path.is_file() else b"").hexdigest()


def contract_digest(file: Path) -> str:
    """The digest of what a contract says, in any layout; of its bytes where it is no JSON."""
    try:
        return digest_of(json.loads(file.read_bytes()))
    except (OSError, ValueError):  # reading it says why
        return file_digest(file)


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
