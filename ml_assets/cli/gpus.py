"""ml-assets models gpus: on which types of GPU a training fits, and how long it would take."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ml_assets.cli import options
from ml_assets.cli.exit_codes import DONE
from ml_assets.cli.session import opened
from ml_assets.errors import counted

if TYPE_CHECKING:
    from ml_assets.actions.gpus import OnGpu


def _prices(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> dict[str, float]:
    """``H100=2.5,L4=0.7``."""
    from ml_assets.actions.gpus import GPUS

    found: dict[str, float] = {}
    for part in value.split(",") if value else ():
        name, _, price = part.partition("=")
        try:
            found[name] = float(price)
        except ValueError as error:
            raise click.BadParameter(f"{part!r} is no price; write H100=2.5") from error
        if name not in GPUS:
            raise click.BadParameter(f"{name!r} is no type of GPU; there are {', '.join(GPUS)}")
    return found


@click.command
@options.pipeline
@click.option(
    "--utilization",
    type=click.FloatRange(0, 1, min_open=True),
    help="The share of a GPU's peak that training is assumed to reach.  [default: 0.3]",
)
@click.option(
    "--prices", callback=_prices, metavar="TYPE=N,...", help="The hourly price of each type."
)
@options.as_json
def gpus(pipeline: str, utilization: float | None, prices: dict[str, float], as_json: bool) -> int:
    """Show on which types of GPU a training fits, and how long it would take.

    Runs two steps of the real training program here, in one process, to count its operations and
    its memory. It needs no GPU.
    """
    from ml_assets.actions.gpus import UTILIZATION, measured_alone, on_gpus

    here, share = opened(pipeline), utilization or UTILIZATION
    found = measured_alone(here)
    table = on_gpus(found, here.spec.training.precision, share, prices)
    if as_json:
        rows = [{**asdict(one), "cost": one.cost} for one in table]
        print(json.dumps({"schema": 1, "pipeline": pipeline, "utilization": share, "gpus": rows}))
        return DONE
    print(
        f"{found.flops_per_row:,.0f} operations a row, {counted(found.steps_planned, 'step')},"
        f" {found.memory_total_mb:,.0f} MB by one process\n\n{'GPU':<10}{'memory':>10}{'fits':>6}"
        f"{f'hours at {share:.0%}':>15}{'an hour':>10}{'costs':>10}"
    )
    print("\n".join(map(_line, table)))
    return DONE


def _line(one: "OnGpu") -> str:
    price, cost = (f"{n:,.2f}" if n is not None else "" for n in (one.price, one.cost))
    fits = "yes" if one.fits else "no"
    line = f"{one.name:<10}{one.memory_gb:>7,} GB{fits:>6}{one.hours:>15,.3g}{price:>10}{cost:>10}"
    return line.rstrip()
