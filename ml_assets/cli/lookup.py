"""ml-assets lookup: the newest features of one entity, from the online store."""

import argparse
import json
from collections.abc import Iterable
from datetime import date

from ml_assets.cli.exit_codes import DONE
from ml_assets.errors import SpecError
from ml_assets.settings import read_settings


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "lookup",
        help="look the newest features of an entity up",
        description="Prints the newest feature row of one entity, as a service gets it from the"
        " online store (ML_ASSETS_ONLINE). Exit code 1 where there is no such entity.",
    )
    parser.add_argument("pipeline")
    parser.add_argument("entity", nargs="+", metavar="COLUMN=VALUE", help="what identifies it")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.assets.online_features.features import look_up_text, open_features

    features = open_features(arguments.pipeline, read_settings())
    given = _pairs(arguments.entity)
    row = look_up_text(features, given)
    if row is None:
        raise SpecError(
            f"{arguments.pipeline} serves no row of {' '.join(arguments.entity)}: it was not among"
            " the newest partitions. Is it written as the feature set has it?"
        )
    if arguments.json:
        print(json.dumps(row, default=_as_text))
    else:
        width = max(map(len, row))
        for name, value in row.items():
            print(f"{name:<{width}}  {'' if value is None else value}")
    return DONE


def _pairs(said: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in said:
        name, sign, value = text.partition("=")
        if not sign:
            raise SpecError(f"{text!r} names no entity: write COLUMN=VALUE, such as carrier=UA.")
        if name in found:
            raise SpecError(f"{name} is given twice, {found[name]!r} and {value!r}; give it once.")
        found[name] = value
    return found


def _as_text(value: object) -> str:
    assert isinstance(value, date)
    return value.isoformat()
