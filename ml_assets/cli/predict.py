"""ml-assets predict: rows in, probabilities out, by the released model."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.tables import add_output, hand_out, output_format
from ml_assets.errors import RowsRefused
from ml_assets.settings import read_settings

if TYPE_CHECKING:
    from ml_assets.assets.released_model.predict import Predictor
    from ml_assets.assets.released_model.rows_to_predict import Rows

_DESCRIPTION = """\
Predict rows with the model that is released, after holding it to its digest.

The rows are of one of two kinds, told apart by their columns:

  rows of a source    the columns of the source that features.subject of the spec names, as they
                      land. The pipeline's own feature function makes their features from the
                      published tables with these rows among them. The label may be absent.
  feature rows        the columns of the feature set: every feature of the model. The key, the
                      time of the decision and the label are carried along, or may be absent.

They come as Parquet, CSV with a header, JSON lines, or one JSON object. What goes out has a row for
each row that came in, in the same order: its key and 'probability' (a binary label), 'prediction'
and 'probability_<class>' for each class, 'prediction' (a number) or 'score' (a ranking). What
could not be predicted is null there, and standard error says why. Starting torch costs a few
seconds, however few the rows.
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "predict",
        help="predict rows with the released model",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pipeline")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("file", nargs="?", help="the rows; - reads standard input")
    given.add_argument("--row", metavar="JSON", help="one row as a JSON object")
    add_output(parser, default="csv")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.assets.released_model.predict import open_release

    kind = output_format(arguments)
    predictor = open_release(arguments.pipeline, read_settings())
    predictions = predictor.predictions(_rows(arguments, predictor))
    for note in predictions.notes:
        print(f"note: {note}", file=sys.stderr)
    hand_out(predictions.frame, arguments.output, kind)
    return DONE


def _rows(arguments: argparse.Namespace, predictor: "Predictor") -> "Rows":
    from ml_assets.assets.released_model.rows_to_predict import parse_rows

    if arguments.row is not None:
        return parse_rows(arguments.row.encode(), "--row")
    if arguments.file == "-":
        return parse_rows(sys.stdin.buffer.read(), "standard input", predictor.null_values)
    try:
        content = Path(arguments.file).read_bytes()
    except OSError as error:
        raise RowsRefused(f"{arguments.file} cannot be read: {error.strerror}.") from error
    return parse_rows(content, arguments.file, predictor.null_values)
