"""A model that is recalled while somebody brings it back: the door asks at the line, not before."""

from datetime import UTC, datetime

from ml_assets.assets.released_model.promote import Refused
from ml_assets.assets.released_model.rollback import Way, roll_back, way_back
from ml_assets.extras.recall.recall import carry_out
from ml_assets.records.ledger.audit import problems
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import champion
from ml_assets.spec.gates import ReleaseSpec
from ml_assets.spec.recalls import Recall
from ml_assets.spec.records import InputVersion
from ml_assets.store.embedded.store import EmbeddedStore
from ml_assets_tests.records.conftest import PIPELINE, A, B, released, store

__all__ = ["store"]
SPEC = ReleaseSpec()


def recall(store: EmbeddedStore, model: str) -> None:
    seed = InputVersion(key=f"{PIPELINE}/trained_model", partition=None, version=model, commit=None)
    said = {"snapshot": model[:12], "author": "rex", "reason": "bad rows"}
    about = {"seeds": (seed,), "reached": (), "stages": (), "time": datetime.now(UTC)}
    carry_out(store, Recall.model_validate({"id": "0123456789ab", **about, **said}))


def test_no_recalled_model_comes_back(store: EmbeddedStore) -> None:
    """Between the look at the model and the line that moves it, it is tried out: seconds."""
    released(store, A)
    released(store, B, champion=A)
    way = way_back(read(store, PIPELINE), SPEC)
    assert way == Way(away=B, back=A)
    recall(store, A)
    moved = roll_back(store, PIPELINE, way, SPEC, "rob", "complaints")
    entries = read(store, PIPELINE)
    told = [one for one in problems(entries) if "recall" in one]
    assert told or isinstance(moved, Refused), "at least the history's check tells of it"
    assert (isinstance(moved, Refused), champion(entries)) == (True, B)
