"""What holds after every attack on the release of a model whose gate failed."""

import pytest

from ml_assets.errors import MlAssetsError
from ml_assets.records.load_release import find_release, load_model
from ml_assets_tests.red_team.conftest import NAME, Scene

REFUSED = "refused the model. too_good: log_loss is"
DECIDED = ["decision", "stage", "decision"]
"""What the ledger says of the two models, beside their registration."""


def require_refused(scene: Scene, said: str, because: str = REFUSED) -> None:
    """The reason is said, no line was added, and nothing loads but the old release."""
    assert because in said, said
    assert [line.kind for line in scene.ledger if line.kind in DECIDED] == DECIDED
    assert scene.in_production == scene.ledger[0].model != scene.candidate
    assert find_release(scene.place).model.digest == scene.in_production
    with pytest.raises(MlAssetsError, match="refused the model"):
        load_model(scene.store, scene.objects, NAME, scene.candidate)
