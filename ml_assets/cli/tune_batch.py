"""ml-assets tune-batch: which batch size, processes and threads train fastest on this machine."""

import argparse
import json
import sys
from typing import TYPE_CHECKING

from ml_assets.cli.exit_codes import DONE, ERROR
from ml_assets.settings import read_settings

if TYPE_CHECKING:
    from ml_assets.actions.tune_batch import Cell, Sweep

_HEAD = (
    f"{'batch':>8}{'processes':>11}{'threads':>9}{'rows/s':>11}{'rows/CPU-s':>12}{'step':>11}"
    f"{'memory':>11}{'data':>8}{'others':>8}"
)


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "tune-batch",
        help="measure which batch size, processes and threads train fastest here",
        description="Takes a few steps of the real training program with each setting, on the"
        " pipeline's last training set. Nothing is kept of them: no model, no run, no line in"
        " MLflow. `data` and `others` are the shares of a step spent waiting for data and for"
        " other processes. Do nothing else on the machine meanwhile.",
    )
    parser.add_argument("pipeline")
    parser.add_argument(
        "--batch",
        type=_numbers,
        default=(),
        metavar="N,N",
        help="rows of a step (default: a third of the spec's, the spec's, thrice the spec's)",
    )
    parser.add_argument(
        "--processes", type=_numbers, default=(), metavar="N,N", help="default: 1 and all cores"
    )
    parser.add_argument(
        "--threads", type=_numbers, default=(), metavar="N,N", help="of each; default: the spec's"
    )
    parser.add_argument("--steps", type=_number, metavar="N", help="measured in each (default 8)")
    parser.add_argument("--json", action="store_true", help="every figure, as JSON")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.actions.tune_batch import STEPS, best, document, open_sweep
    from ml_assets.store.pipeline_context import open_pipeline

    pipeline = open_pipeline(arguments.pipeline, read_settings())
    steps = arguments.steps or STEPS
    sweep = open_sweep(pipeline, arguments.batch, arguments.processes, arguments.threads, steps)
    progress = sys.stderr if arguments.json else sys.stdout
    print(_HEAD, file=progress, flush=True)
    cells: list[Cell] = []
    for cell in sweep.cells():
        cells.append(cell)
        print(_line(cell), file=progress, flush=True)
    if arguments.json:
        print(json.dumps(document(sweep, cells), indent=2))
    chosen = best(cells)
    if chosen is None:
        print("\nnothing could be measured", file=progress)
        return ERROR
    print(_advice(sweep, chosen), file=progress)
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


def _advice(sweep: "Sweep", chosen: "Cell") -> str:
    """What to write, and what it changes beside the speed."""
    now, one = sweep.pipeline.spec.training, chosen.setting
    fields = {"batch_size": one.batch, "processes": one.processes, "threads": one.threads}
    written = ", ".join(f"{name}: {value}" for name, value in fields.items())
    lines = [f"\nbest: training: {{{written}}}"]
    if all(getattr(now, name) == value for name, value in fields.items()):
        return f"{lines[0]}\n  this is what the spec says"
    if one.batch != now.batch_size:
        lines.append(
            f"  batch_size {now.batch_size:,} -> {one.batch:,} trains another model: choose"
            " learning_rate anew, and let the gates judge it"
        )
    if one.threads != now.threads:
        lines.append("  threads changes the last bits of the weights: it trains again")
    if one.processes != now.processes:
        lines.append("  processes changes no model: a training goes on with it")
    return "\n".join(lines)


def _number(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(_number(part.strip()) for part in text.split(","))
