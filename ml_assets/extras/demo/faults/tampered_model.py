"""One byte of a released model is changed on the disk: it is not used, and status says so."""

from pathlib import Path
from typing import Any

from ml_assets.assets.released_model.find_release import find_release
from ml_assets.extras.demo.faults.ground import Ground, InjectionResult
from ml_assets.spec.program import ModelManifest

_MANIFEST = "model.json"
_FLOOR = 0.55
"""The lowest AUC: what a network learns of five weeks in one epoch is enough."""


def plant(ground: Ground) -> InjectionResult:
    """Release a model, change a byte of its weights, and try to predict with it."""
    ground.prepare(_that_is_released)
    released = ground.command("run", ground.pipeline)
    digest = ground.released()
    if released.code or digest is None:
        return _without_a_release(ground)
    sound = find_release(ground.place())  # it could be used: the byte alone is at fault
    folder = Path(sound.model.uri)
    weights = (
        folder / ModelManifest.model_validate_json((folder / _MANIFEST).read_bytes()).weights.path
    )
    place = flip_a_byte(weights)
    ground.tell(f"byte {place:,} of {weights} is changed")
    rows = sorted((ground.sources / "landing" / "flights").glob("*.csv"))[0]
    predicted = ground.command("predict", ground.pipeline, str(rows))
    status = ground.command("status", ground.pipeline)
    said = predicted.line("error:").removeprefix("error: ").replace(f"{folder}/", "")
    told = status.line("cannot be used")
    return InjectionResult(
        predicted.code != 0 and digest[:12] in said and bool(told),
        f"one changed byte in the weights of the released model {digest[:12]}",
        f"the digest, when predict loaded it: {said}" if said else "nothing: it was predicted with",
        f"status {'says so too' if told else 'SAYS NOTHING OF IT'}; the model is used nowhere",
        ground.look(f"status {ground.pipeline}", f"predict {ground.pipeline} {rows}"),
    )


def flip_a_byte(file: Path) -> int:
    """Change the byte in the middle of a file; where that is."""
    data = bytearray(file.read_bytes())
    place = len(data) // 2
    data[place] ^= 0xFF
    file.chmod(0o644)
    file.write_bytes(data)
    return place


def _that_is_released(spec: dict[str, Any]) -> None:
    spec["training"]["epochs"] = 1
    spec["gates"] = [
        {"kind": "bound", "name": "quality_floor", "metric": "auc", "at_least": _FLOOR},
        {"kind": "leak_alarm", "metric": "auc", "bound": 0.80},
    ]


def _without_a_release(ground: Ground) -> InjectionResult:
    planted = "nothing: the model that was to be changed was not released"
    return InjectionResult(False, planted, "nothing", "the run failed", ground.look())
