"""ml-assets verify: hold releases to their certificates, in the store or in an exported folder."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ml_assets.cli.exit_codes import DONE, REFUSED
from ml_assets.settings import read_settings

if TYPE_CHECKING:
    from ml_assets.actions.verify import Verification

SCHEMA = 1
_DESCRIPTION = """\
Hold what is released to what was signed; works offline.

  PIPELINE  its ledger, every certificate, and the model in each of its stages
  FOLDER    what `ml-assets export` wrote; no store is needed
  (none)    every pipeline that has a ledger

A signature counts if its key does: --key, ML_ASSETS_TRUSTED_KEYS, or that of
ML_ASSETS_SIGNING_KEY. Without any of these digests and the chain are verified, not who wrote them.
Exit code 0: everything holds; 3: something was refused, each with its reason.
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "verify",
        help="hold releases to their certificates",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("subject", nargs="?", metavar="PIPELINE|FOLDER")
    parser.add_argument("--key", metavar="PUBLIC", help="of a folder: base64, or a file with it")
    parser.add_argument(
        "--head", metavar="SEQ:SHA256", help="of a pipeline: a head that was noted before"
    )
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    found = _verified(arguments)
    if arguments.json:
        print(json.dumps(_document(found), indent=2))
    for one in [] if arguments.json else found:
        print(f"{one.subject}: {'verified' if one.holds else 'REFUSED'}")
        for check in one.checks:
            print(f"  {check.outcome:<8} {check.name}: {check.reason}")
    return DONE if all(one.holds for one in found) else REFUSED


def _verified(arguments: argparse.Namespace) -> "list[Verification]":
    from ml_assets.actions.verify import verify_folder, verify_pipelines
    from ml_assets.spec.load import pipeline_folders

    subject, settings = arguments.subject, read_settings()
    if subject is None or subject in pipeline_folders(settings):
        return verify_pipelines(settings, subject, arguments.head)
    return [verify_folder(Path(subject), arguments.key)]


def _document(found: "list[Verification]") -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "verified": all(one.holds for one in found),
        "subjects": [
            {
                "subject": one.subject,
                "verified": one.holds,
                "checks": [vars(check) for check in one.checks],
            }
            for one in found
        ],
    }
