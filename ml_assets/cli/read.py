"""ml-assets read: the rows of any stored table."""

import argparse

from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.tables import add_output, hand_out, output_format
from ml_assets.settings import read_settings

_DESCRIPTION = """\
Read a stored table by its asset key:

  PIPELINE/raw_snapshot/raw_SOURCE   a source as it was read
  PIPELINE/validated_table/SOURCE    the rows that meet the contract
  PIPELINE/quarantine/SOURCE         the rows that do not, each with its reason
  PIPELINE/rejected/SOURCE           tables of which nothing was published
  PIPELINE/derived_table/TABLE       a table of the team's own
  PIPELINE/feature_set               one row per decision
  PIPELINE/online_features           the newest one of each entity
  PIPELINE/training_set              the rows trained on, each with its split

A key that is not there lists those that are.
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "read",
        help="read any stored table, as it is or as it was",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("key")
    parser.add_argument("--partition", help="default: all of them, oldest first")
    parser.add_argument(
        "--version", help="a commit, a tag or a data version, or the beginning of one"
    )
    parser.add_argument("--limit", type=_count, metavar="N", help="the first N rows")
    add_output(parser, default="table")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.actions.read_table import read_table

    kind = output_format(arguments)
    rows = read_table(arguments.key, arguments.partition, arguments.version, read_settings())
    if arguments.limit is not None:
        rows = rows.head(arguments.limit)
    hand_out(rows.collect(), arguments.output, kind)
    return DONE


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is no number of rows")
    return number
