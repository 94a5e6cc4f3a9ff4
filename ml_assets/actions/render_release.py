"""Renders an exported release as objects of a serving platform: KServe, in both forms of its
canary, or Argo Rollouts. Pure functions of the folder."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from ml_assets.assets.released_model.bundle import HANDOVER, check_bundle
from ml_assets.errors import EvidenceError, SettingsError
from ml_assets.spec.handover import Handover
from ml_assets.spec.rollout import RolloutSpec
from ml_assets.store.embedded.trust import given_keys

Platform = Literal["kserve", "argo"]
Object = Mapping[str, Any]
_PORT = 8080
_FORMAT = "ml-assets"
"""The model format that the cluster's ServingRuntime has to name."""


@dataclass(frozen=True)
class ServingPlatform:
    """Says where a platform finds models, and what serves them."""

    storage: str
    """Folders that were exported lie below it, as ``PIPELINE-MODEL``."""
    image: str
    """Argo: the server, which finds the model's folder in ``ML_ASSETS_MODEL``."""
    prometheus: str
    """Argo: the address that its analysis asks."""

    def of(self, told: Handover, model: str) -> str:
        return f"{self.storage.rstrip('/')}/{told.pipeline}-{model[:12]}"


def read_handover(folder: Path, trusted: Collection[str] | None = None) -> Handover:
    """The document of an exported folder, once all of the folder holds.

    Args:
        trusted: public keys that count, base64, as `verify` takes them; None: the environment's.

    Raises:
        EvidenceError: something of it does not hold.
        SettingsError: it is no exported folder, or an older version wrote it.
    """
    if not (folder / HANDOVER).is_file():
        raise SettingsError(
            f"{folder} has no {HANDOVER}. Export the release: ml-assets release export PIPELINE"
        )
    keys = given_keys().trusted if trusted is None else trusted
    refused = [one.reason for one in check_bundle(folder, keys) if one.outcome == "refused"]
    if refused:
        raise EvidenceError(f"{folder} does not verify: {' '.join(refused)}")
    return Handover.model_validate_json((folder / HANDOVER).read_bytes())


def rendered(told: Handover, platform: Platform, place: ServingPlatform, crd: str | None) -> str:
    """The objects as YAML.

    Args:
        crd: KServe: the cluster's definition of InferenceService, which says which form it takes.
    """
    objects = argo(told, place) if platform == "argo" else [kserve(told, place, has_list(crd))]
    return yaml.safe_dump_all(objects, sort_keys=False)


def has_list(crd: str | None) -> bool:
    """Return whether a cluster's InferenceService has a list of canaries (``spec.canary``), which
    its standard mode takes; else ``canaryTrafficPercent``, which its serverless mode takes.

    Raises:
        SettingsError: it is no definition of InferenceService.
    """
    if crd is None:
        return False
    try:
        spec = yaml.safe_load(crd)["spec"]
        named, versions = spec["names"]["kind"], spec["versions"]
        served = next(one for one in versions if one["name"] == "v1beta1")
        fields = served["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    except (yaml.YAMLError, KeyError, TypeError, StopIteration) as error:
        raise _no_definition() from error
    if named != "InferenceService":
        raise _no_definition()
    return "canary" in fields


def kserve(told: Handover, place: ServingPlatform, listed: bool) -> Object:
    """The InferenceService that takes the release up, its canary first where there is a rollout."""
    percent = _percent(told.rollout.share) if told.rollout else None
    new = _predictor(place.of(told, told.model))
    mode = "Standard" if listed else "Knative"
    spec: dict[str, Any] = {"predictor": new}
    if percent is not None and listed and told.rollback_to:
        before = _predictor(place.of(told, told.rollback_to))
        canary = {"predictor": {"name": f"m{told.model[:8]}", **new}, "trafficPercent": percent}
        stable = {"name": f"m{told.rollback_to[:8]}", **before}
        spec = {"predictor": stable, "canary": [canary]}
    elif percent is not None and not listed:
        spec["predictor"] = {"canaryTrafficPercent": percent, **new}
    annotations = {"serving.kserve.io/deploymentMode": mode, **_annotations(told)}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": _name(told), "annotations": annotations},
        "spec": spec,
    }


def argo(told: Handover, place: ServingPlatform) -> list[Object]:
    """A Rollout by the spec's steps, and the analysis that aborts it."""
    name, labels = _name(told), {"app": _name(told)}
    container = {
        "name": "server",
        "image": place.image,
        "env": [{"name": "ML_ASSETS_MODEL", "value": place.of(told, told.model)}],
        "ports": [{"containerPort": _PORT}],
        "readinessProbe": {"httpGet": {"path": "/v2/health/ready", "port": _PORT}},
    }
    canary: dict[str, Any] = {"steps": [*_steps(told.rollout)]}
    if told.rollout:
        canary["analysis"] = {
            "templates": [{"templateName": name}],
            "startingStep": 1,
            "args": [
                {"name": "canary", "valueFrom": {"podTemplateHashValue": "Latest"}},
                {"name": "stable", "valueFrom": {"podTemplateHashValue": "Stable"}},
            ],
        }
    rollout = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Rollout",
        "metadata": {"name": name, "annotations": _annotations(told)},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": dict(labels)}, "spec": {"containers": [container]}},
            "strategy": {"canary": canary},
        },
    }
    return [rollout, *([_analysis(name, told.rollout, place)] if told.rollout else [])]


def _analysis(name: str, rollout: RolloutSpec, place: ServingPlatform) -> Object:
    """Errors and latency, by the server's own metrics; how predictions move needs the server's
    comparison, which ``ml-assets serve`` makes."""
    of = "ml_assets_serving_request"
    errors = (
        f'sum(rate({of}s_total{{pod=~".*{{{{args.canary}}}}.*",code=~"5.."}}[5m]))'
        f' / sum(rate({of}s_total{{pod=~".*{{{{args.canary}}}}.*"}}[5m]))'
    )

    def late(pods: str) -> str:
        rate = f'rate({of}_seconds_bucket{{pod=~".*{{{{args.{pods}}}}}.*"}}[5m])'
        return f"histogram_quantile(0.95, sum by (le) ({rate}))"

    bounds = {
        "errors": (errors, rollout.abort.errors),
        "slower": (f"{late('canary')} / {late('stable')}", rollout.abort.slower),
    }
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "AnalysisTemplate",
        "metadata": {"name": name},
        "spec": {
            "args": [{"name": "canary"}, {"name": "stable"}],
            "metrics": [
                {
                    "name": metric,
                    "interval": "1m",
                    "failureCondition": f"len(result) > 0 && result[0] > {bound:g}",
                    "provider": {"prometheus": {"address": place.prometheus, "query": query}},
                }
                for metric, (query, bound) in bounds.items()
            ],
        },
    }


def _steps(rollout: RolloutSpec | None) -> Iterator[Object]:
    """None: at once."""
    if rollout is None:
        return
    for share in (rollout.share, *(step for step in rollout.steps if step > rollout.share)):
        yield {"setWeight": _percent(share)}
        yield {"pause": {"duration": f"{rollout.minutes}m"}}


def _predictor(storage: str) -> dict[str, Any]:
    return {
        "model": {
            "name": "kserve-container",
            "modelFormat": {"name": _FORMAT},
            "protocolVersion": "v2",
            "storageUri": storage,
        }
    }


def _annotations(told: Handover) -> dict[str, str]:
    known = {"model": told.model, "ledger-line": str(told.ledger_line)}
    if told.rollback_to:
        known["rollback-to"] = told.rollback_to
    return {f"ml-assets/{name}": value for name, value in known.items()}


def _name(told: Handover) -> str:
    """As Kubernetes names things."""
    return told.pipeline.lower().replace("_", "-")


def _percent(share: float) -> int:
    """At least one: a share of nothing is no canary."""
    return max(1, round(100 * share))


def _no_definition() -> SettingsError:
    return SettingsError(
        "That is not a definition of KServe's InferenceService with v1beta1. Get it:"
        " kubectl get crd inferenceservices.serving.kserve.io -o yaml"
    )
