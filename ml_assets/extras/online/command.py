"""ml-assets data lookup: the newest features of one entity, as a service gets them."""

import json
from collections.abc import Iterable
from datetime import date

import click

from ml_assets.cli import options
from ml_assets.errors import SpecError
from ml_assets.settings import read_settings


@click.command
@options.pipeline
@click.argument("entity", nargs=-1, required=True, metavar="COLUMN=VALUE...")
@options.as_json
def lookup(pipeline: str, entity: tuple[str, ...], as_json: bool) -> None:
    """Look up the newest features of an entity.

    Prints the newest feature row of one entity, as a service gets it from the online store
    (ML_ASSETS_ONLINE). Exit code 1: there is no such entity.

    \b
      ml-assets data lookup flight_delays carrier=UA flight=1545 origin=EWR
    """
    from ml_assets.extras.online.features import look_up_text, open_features

    features = open_features(pipeline, read_settings())
    row = look_up_text(features, _pairs(entity))
    if row is None:
        raise SpecError(
            f"{pipeline} serves no row of {' '.join(entity)}: the newest partitions have none."
            " Check that it is written as in the feature set."
        )
    if as_json:
        print(json.dumps(row, default=_as_text))
        return
    width = max(map(len, row))
    for name, value in row.items():
        print(f"{name:<{width}}  {'' if value is None else value}")


def _pairs(said: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in said:
        name, sign, value = text.partition("=")
        if not sign:
            raise SpecError(
                f"{text!r} is not part of an entity: write COLUMN=VALUE, such as carrier=UA."
            )
        if name in found:
            raise SpecError(f"{name} is given twice, {found[name]!r} and {value!r}; give it once.")
        found[name] = value
    return found


def _as_text(value: object) -> str:
    assert isinstance(value, date)
    return value.isoformat()
