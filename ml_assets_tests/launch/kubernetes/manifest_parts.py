"""The parts of a Job's manifest that tests look at."""

from typing import Any

from ml_assets.spec.training import Spot, TrainingSpec


def pod_of(job: dict[str, Any]) -> dict[str, Any]:
    return job["spec"]["template"]["spec"]


def container_of(job: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod_of(job)["containers"]
    return container


def env_of(job: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container_of(job)["env"]}


def on_spot(rate: float) -> TrainingSpec:
    return TrainingSpec(spot=Spot(notice_seconds=120, write_mb_per_second=rate))
