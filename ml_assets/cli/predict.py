"""ml-assets predict: rows in, probabilities out, by the released model."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ml_assets.cli import options
from ml_assets.cli.output import hand_out, row_format
from ml_assets.errors import RowsRefused
from ml_assets.settings import read_settings

if TYPE_CHECKING:
    import polars as pl

    from ml_assets.assets.released_model.predict import Predictor
    from ml_assets.assets.released_model.rows_to_predict import RowsAsSent

_READ = ("csv", "table")
"""Formats that people read on a screen."""


@click.command
@options.pipeline
@click.argument("file", required=False)
@click.option("--row", metavar="JSON", help="One row as a JSON object, instead of FILE.")
@options.rows_out(default="csv")
def predict(
    pipeline: str, file: str | None, row: str | None, kind: str | None, target: Path | None
) -> None:
    """Predict rows with the released model.

    Checks the model against its digest first. FILE has the rows as Parquet, CSV with a header, JSON
    lines, or one JSON object; - reads standard input. The rows may be of two kinds, which the
    command recognizes by their columns:

    \b
      rows of a source   the columns of the source that features.subject of the
                         spec names, as they arrive. The pipeline's own feature
                         function makes their features from the published tables
                         and these rows. The label, and columns that the source
                         lists under after_event, may be absent.
      feature rows       the columns of the feature set: every feature of the
                         model. The key, the time of the decision and the label
                         are carried along, or may be absent.

    The output has one row for each input row, in the same order: its key and 'probability' (a
    binary label), 'prediction' and 'probability_<class>' for each class, 'prediction' (a number) or
    'score' (a ranking). A row that could not be predicted is null, and standard error says why.
    Standard error also counts values that the contract warns of, categories that no training row
    had, and numbers outside the range of the training set. CSV on standard output has predictions
    of six digits; JSON lines, Parquet and files have all digits. Starting torch takes a few
    seconds, even for one row.

    \b
      ml-assets predict flight_delays tomorrow.csv --output late.parquet
    """
    if (file is None) == (row is None):
        raise click.UsageError("Give the rows: a FILE (- reads standard input), or --row JSON.")
    from ml_assets.assets.released_model.predict import open_release

    kind = row_format(kind, target, "csv")
    predictor = open_release(pipeline, read_settings())
    predictions = predictor.predictions(_rows(file, row, predictor))
    for note in predictions.notes:
        print(f"note: {note}", file=sys.stderr)
    frame = predictions.frame
    hand_out(_six_digits(frame) if target is None and kind in _READ else frame, target, kind)


def _six_digits(frame: "pl.DataFrame") -> "pl.DataFrame":
    """The predictions as a person reads them; keys and others stay as they are."""
    from polars import selectors as cs

    told = cs.matches("^(prediction|probability.*|score|nats)$") & cs.float()
    return frame.with_columns(told.round_sig_figs(6))


def _rows(file: str | None, row: str | None, predictor: "Predictor") -> "RowsAsSent":
    from ml_assets.assets.released_model.rows_to_predict import parse_rows

    if file is None:
        return parse_rows((row or "").encode(), "--row")
    if file == "-":
        return parse_rows(sys.stdin.buffer.read(), "standard input", predictor.files)
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise RowsRefused(f"{file} cannot be read: {error.strerror}.") from error
    return parse_rows(content, file, predictor.files)
