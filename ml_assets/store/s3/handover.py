"""A result and its files, beside their attempt on S3: the result comes last."""

from pathlib import Path

from ml_assets.spec.base import canonical_json
from ml_assets.spec.training_program import File, Ref, Result, ScoreResult, TrainResult
from ml_assets.spec.training_program.pod import MODEL, PREDICTIONS, RESULT
from ml_assets.store.s3.client import S3Place
from ml_assets.store.s3.content import MODELS, publish_folder


def put_made(result: Result, place: S3Place) -> Result:
    """Upload what a result names, its manifest last; return the result as the store has it. Safe
    to repeat.

    Args:
        result: with the paths of this machine.
        place: of the attempt.

    Raises:
        StorageError: what is here is not what the result says.
    """
    match result:
        case TrainResult():
            publish_folder(place.at(MODEL), Path(result.model.uri), MODELS)
            there = Ref(uri=f"{place.uri}/{MODEL}", digest=result.model.digest)
            return result.model_copy(update={"model": there})
        case ScoreResult():
            made = result.predictions
            place.upload(PREDICTIONS, Path(made.path))
            there = File(path=PREDICTIONS, size=made.size, sha256=made.sha256)
            return result.model_copy(update={"predictions": there})
        case _:
            return result


def put_result(moved: Result, place: S3Place) -> None:
    """The result counts from here on; the first one of an attempt stays."""
    place.write_new(RESULT, canonical_json(moved))
