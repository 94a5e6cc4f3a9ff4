"""ml-assets export: the released model as a folder that proves itself."""

import argparse
import sys
from pathlib import Path

from ml_assets.cli.exit_codes import DONE
from ml_assets.settings import read_settings

_DESCRIPTION = """\
Write the released model to a folder: weights, configuration and preprocessing, the certificate of
the decision that released it, the ledger line that it is about, the public key, a model card.

`ml-assets verify FOLDER` holds all of it to the certificate, on any machine, without a store.
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "export",
        help="the released model with its certificate, as a folder",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pipeline")
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="default: ./PIPELINE-MODEL")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.actions.export import export_release
    from ml_assets.assets.released_model.released import refusal_since
    from ml_assets.store.pipeline_context import open_pipeline

    done = export_release(open_pipeline(arguments.pipeline, read_settings()), arguments.to)
    since = refusal_since(done.release)
    if since:
        print(f"note: {since}", file=sys.stderr)
    print(done.folder if done.new else f"{done.folder} (it was there already, whole)")
    return DONE
