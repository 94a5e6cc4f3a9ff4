"""ml-assets models tune-batch: which batch size, processes and threads train fastest here."""

import json
import math
import sys
from typing import TYPE_CHECKING

import click

from ml_assets.cli import options
from ml_assets.cli.output import DONE, ERROR
from ml_assets.cli.session import opened

if TYPE_CHECKING:
    from ml_assets.actions.tune_batch import Cell, Sweep

_HEAD = (
    f"{'batch':>8}{'processes':>11}{'threads':>9}{'rows/s':>11}{'rows/CPU-s':>12}{'step':>11}"
    f"{'memory':>11}{'data':>8}{'others':>8}"
)


def _limit(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Megabytes; infinite: all that a GPU has."""
    if value is None:
        return None
    if value != "gpu":
        return float(options.COUNT(value, parameter, context))
    from ml_assets.spec.memory_estimate import machine_room

    if not machine_room().gpus:
        raise click.BadParameter("there is no GPU here: give megabytes of memory, such as 4000")
    return math.inf


@click.command
@options.pipeline
@click.option(
    "--batch",
    callback=options.numbers,
    metavar="N,N",
    help="Rows per step.  [default: a third of the spec's, the spec's, three times the spec's]",
)
@click.option(
    "--processes",
    callback=options.numbers,
    metavar="N,N",
    help="Numbers of processes to try.  [default: 1 and all cores]",
)
@click.option(
    "--threads",
    callback=options.numbers,
    metavar="N,N",
    help="Threads per process.  [default: the spec's]",
)
@click.option(
    "--steps",
    type=options.COUNT,
    metavar="N",
    help="Steps to measure with each setting.  [default: 8]",
)
@click.option(
    "--largest",
    callback=_limit,
    metavar="MB|gpu",
    help="Find the largest batch instead, to 5 %: within this memory of all processes, or a GPU's.",
)
@options.as_json
def tune_batch(
    pipeline: str,
    batch: tuple[int, ...],
    processes: tuple[int, ...],
    threads: tuple[int, ...],
    steps: int | None,
    largest: float | None,
    as_json: bool,
) -> int:
    """Measure which batch size and number of processes train fastest here.

    Runs a few steps of the real training program with each setting, on the pipeline's last training
    set. Keeps nothing: no model, no run, no line in MLflow. `data` and `others` are the shares of a
    step spent waiting for data and for other processes. Leave the machine otherwise idle meanwhile.
    """
    from ml_assets.actions.tune_batch import STEPS, best, document, largest_of, open_sweep

    sweep = open_sweep(opened(pipeline), batch, processes, threads, steps or STEPS)
    progress = sys.stderr if as_json else sys.stdout
    print(_HEAD, file=progress, flush=True)
    cells: list[Cell] = []
    for cell in sweep.cells() if largest is None else sweep.largest(largest):
        cells.append(cell)
        print(_line(cell), file=progress, flush=True)
    chosen = best(cells) if largest is None else largest_of(cells)
    if as_json:
        print(json.dumps(document(sweep, cells, chosen), indent=2))
    if chosen is None:
        print("\nnothing could be measured", file=progress)
        return ERROR
    print(_advice(sweep, chosen, "best" if largest is None else "largest"), file=progress)
    return DONE


def _line(cell: "Cell") -> str:
    one, found = cell.setting, cell.measured
    line = f"{one.batch:>8,}{one.processes:>11}{one.threads:>9}"
    if found is None:
        return f"{line}  {cell.why_not}"
    return (
        f"{line}{found.rows_per_second:>11,.0f}{found.rows_per_cpu_second:>12,.0f}"
        f"{found.step_time_ms:>8,.0f} ms{found.memory_total_mb:>8,.0f} MB"
        f"{found.data_wait_share:>8.1%}{found.communication_share:>8.1%}"
    )


def _advice(sweep: "Sweep", chosen: "Cell", word: str) -> str:
    """What to write, and what it changes beside the speed."""
    now, one = sweep.pipeline.spec.training, chosen.setting
    fields = {"batch_size": one.batch, "processes": one.processes, "threads": one.threads}
    written = ", ".join(f"{name}: {value}" for name, value in fields.items())
    lines = [f"\n{word}: training: {{{written}}}"]
    if all(getattr(now, name) == value for name, value in fields.items()):
        return f"{lines[0]}\n  this is the {word} setting, and the spec has it already"
    if one.batch != now.batch_size:
        lines.append(
            f"  batch_size {now.batch_size:,} -> {one.batch:,} trains another model: choose "
            "learning_rate again, and let the gates judge it"
        )
    if one.threads != now.threads:
        lines.append("  threads changes the last bits of the weights: the model is trained again")
    if one.processes != now.processes:
        lines.append("  processes does not change the model: a training continues with it")
    return "\n".join(lines)
