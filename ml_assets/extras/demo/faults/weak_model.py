"""A training that learns nothing: the model is made, judged, and refused by the quality floor."""

from typing import Any

from ml_assets.extras.demo.faults.ground import Ground, InjectionResult, refused_by

_RATE = 1e-7


def plant(ground: Ground) -> InjectionResult:
    """Train with a learning rate of nothing, and see the floor refuse the model."""
    ground.prepare(_that_learns_nothing)
    ran = ground.command("run", ground.pipeline)
    held, caught = refused_by(ground, "quality_floor", ran)
    return InjectionResult(
        held,
        f"one epoch with a learning rate of {_RATE}: the weights stay as they were drawn",
        caught,
        "nothing is released" if ground.released() is None else "THE MODEL IS RELEASED",
        ground.look(f"status {ground.pipeline}", f"models experiments {ground.pipeline}"),
    )


def _that_learns_nothing(spec: dict[str, Any]) -> None:
    spec["training"] |= {"epochs": 1, "learning_rate": _RATE}
