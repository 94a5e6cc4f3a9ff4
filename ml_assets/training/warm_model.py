"""python -m ml_assets.training.warm_model --model FOLDER --digest SHA256: a model kept loaded.

It predicts the questions on standard input until that ends, or until its parent does; see
``spec.training_program.warm_protocol`` for the frames. Nothing else is written to standard output.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from ml_assets.spec.network_code import NetworkCode
from ml_assets.spec.training_program import ModelManifest, Ref
from ml_assets.spec.training_program.exit_codes import EXIT_BAD_DATA, EXIT_DONE
from ml_assets.spec.training_program.warm_protocol import ANSWER, QUESTION
from ml_assets.training.model_folder import open_model
from ml_assets.training.orphans import end_with_parent
from ml_assets.training.rows.arrays import Predict, Rows
from ml_assets.training.score import load_predictor
from ml_assets.training.stop import Stopped

if TYPE_CHECKING:
    from ml_assets.training.models.team import TeamCode


def main() -> int:
    """Load the model, say so, and answer until nothing more is asked."""
    parser = argparse.ArgumentParser(
        prog="python -m ml_assets.training.warm_model", description=__doc__
    )
    parser.add_argument("--model", required=True, type=Path, help="the folder of the model")
    parser.add_argument("--digest", required=True, help="of its model.json")
    parser.add_argument("--threads", required=True, type=int, help="that it computes with")
    parser.add_argument("--code", type=Path, help="a file with the code of a team's own network")
    arguments = parser.parse_args()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else prints does not print into the frames
    end_with_parent()
    try:
        manifest = open_model(Ref(uri=str(arguments.model), digest=arguments.digest))
        code = _code(arguments.code) if arguments.code else None
        predict = load_predictor(arguments.model, manifest, arguments.threads, code)
    except Stopped as stop:
        _answer(answers, str(stop).encode(), failed=True)
        return EXIT_BAD_DATA
    _answer(answers, b"")
    while question := sys.stdin.buffer.read(QUESTION.size):
        (count,) = QUESTION.unpack(question)
        rows = _read_rows(sys.stdin.buffer, count, manifest)
        try:
            _answer(answers, _predicted(predict, rows))
        except Exception as error:  # the server says it to whoever asked, and goes on
            _answer(answers, f"{type(error).__name__}: {error}".encode(), failed=True)
    return EXIT_DONE


def _code(file: Path) -> "TeamCode":
    from ml_assets.training.models.team import TeamCode

    return TeamCode.written(NetworkCode.model_validate_json(file.read_bytes()), file.parent)


def _read_rows(given: BinaryIO, count: int, manifest: ModelManifest) -> Rows:
    read = manifest.preprocessing
    wide = len(read.numeric) + len(read.null_flags)
    numeric = np.frombuffer(given.read(4 * count * wide), np.float32).reshape(count, wide)
    words = len(read.categorical)
    categorical = np.frombuffer(given.read(4 * count * words), np.int32).reshape(count, words)
    return Rows(numeric.copy(), categorical.copy(), np.zeros(count, np.float32))


def _predicted(predict: Predict, rows: Rows) -> bytes:
    return np.ascontiguousarray(predict(rows), dtype=np.float64).tobytes()


def _answer(answers: BinaryIO, content: bytes, *, failed: bool = False) -> None:
    answers.write(ANSWER.pack(failed, len(content)) + content)
    answers.flush()


if __name__ == "__main__":
    sys.exit(main())
