"""The faults that ``ml-assets demo --plant`` plants, and how each is told."""

from collections.abc import Callable, Mapping
from pathlib import Path

from ml_assets.adapters.execute import Tell
from ml_assets.extras.demo.faults import bad_rows, killed_rank, leak, tampered_model, weak_model
from ml_assets.extras.demo.faults.ground import Ground, InjectionResult
from ml_assets.settings import Settings

PLANTS: Mapping[str, Callable[[Ground], InjectionResult]] = {
    "leak": leak.plant,
    "weak-model": weak_model.plant,
    "bad-rows": bad_rows.plant,
    "tampered-model": tampered_model.plant,
    "killed-rank": killed_rank.plant,
}


def plant(
    name: str, settings: Settings, original: Path, world: Path, tell: Tell
) -> InjectionResult:
    """Plant one fault in a place of its own, ``planted/<name>`` of the state folder.

    Args:
        original: folder of the pipeline that is copied; it stays as it is, and so do its releases.
        world: the demo's outside world; what is missing of it is laid out.
    """
    return PLANTS[name](Ground(name, settings.home / "planted" / name, original, world, tell))


def sentences(outcome: InjectionResult) -> list[str]:
    """What a person is told at the end."""
    return [
        f"planted:  {outcome.planted}",
        f"caught by {outcome.caught}",
        f"now:      {outcome.after}",
        "look:     " + "\n          ".join(outcome.look),
        "THE GUARD HELD" if outcome.held else "THE GUARD DID NOT HOLD",
    ]
