"""ml-assets models: runs and models compared and judged, their cost, and the GPUs they fit."""

import getpass
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ml_assets.cli import options
from ml_assets.cli.groups import CommandGroup, of_extra
from ml_assets.cli.output import DONE, aligned, hand_out, row_format, tell_page
from ml_assets.cli.session import opened, prepared_settings
from ml_assets.cli.tune_batch import tune_batch
from ml_assets.errors import counted

if TYPE_CHECKING:
    from ml_assets.actions.gpus import OnGpu
    from ml_assets.records.experiments import HypothesisVerdict


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
            raise click.BadParameter(f"{part!r} is not a price; write H100=2.5") from error
        if name not in GPUS:
            raise click.BadParameter(
                f"{name!r} is not a known type of GPU; known are {', '.join(GPUS)}"
            )
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
    hours = _hours(one.hours)
    line = f"{one.name:<10}{one.memory_gb:>7,} GB{fits:>6}{hours:>15}{price:>10}{cost:>10}"
    return line.rstrip()


def _hours(hours: float) -> str:
    if hours < 0.001:
        return "below 0.001"
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"


VERDICTS = ("confirmed", "rejected", "open")


@click.command
@options.pipeline
@click.option(
    "--last",
    type=options.Whole(1, 1000),
    default=20,
    metavar="N",
    show_default=True,
    help="The number of runs.",
)
@options.open_page
@options.as_json
def experiments(pipeline: str, last: int, open_page: bool, as_json: bool) -> None:
    """Show the last runs side by side.

    Shows what was tried, why, and with which result, for every run that trained or judged a model,
    including refused and failed ones: metrics, loss, time, cost, data, decision, stage and its
    author's words. Writes a page that sorts by any column, and prints the short form.
    """
    from ml_assets.actions.experiments import document, write_page
    from ml_assets.records.recent_runs import rows
    from ml_assets.reports.run_rows import short_table

    of = opened(pipeline)
    if as_json:
        print(json.dumps(document(of, last), indent=2))
        return
    found = rows(of, last)
    if not found:
        print(f"{pipeline}: there is no run yet. Begin with: ml-assets run {pipeline}")
        return
    shown = short_table(found, last)
    for line in aligned([tuple(shown.head), *(tuple(row) for row in shown.rows)]):
        print(line)
    tell_page(write_page(of, last), open_page=open_page)


@click.command
@options.pipeline
@click.argument("before", metavar="[A]", required=False)
@click.argument("after", metavar="[B]", required=False)
@options.as_json
def compare(pipeline: str, before: str | None, after: str | None, as_json: bool) -> None:
    """Show the differences between two runs, models or releases.

    Compares spec, data, metrics and importance of A and B. Each is the beginning of a run's or
    model's id, a stage, or latest. Without them it compares the last release with the one before
    it.

    \b
      ml-assets models compare flight_delays 3fb92832 latest
    """
    if (before is None) != (after is None):
        raise click.UsageError("Name both A and B, or neither.")
    from ml_assets.actions.compare_runs import compare, said

    found = compare(opened(pipeline), before, after)
    if as_json:
        print(json.dumps(found.document(), indent=2))
        return
    for name, side in (("A", found.before), ("B", found.after)):
        model = f"model {side.digest[:12]}" if side.digest else "no model"
        print(f"{name}: run {side.folder.run[:8]}, {side.folder.begun:%Y-%m-%d %H:%M} UTC, {model}")
        for what, text in said(side):
            print(f"   {what}: {text}")
    lines = [(c.group, c.name, c.before or "–", c.after or "–") for c in found.changes]
    for line in aligned([("part", "what", "A", "B"), *lines]) if lines else ["nothing differs"]:
        print(line)


@click.command
@options.pipeline
@click.argument("run", metavar="RUN|MODEL")
@click.option("--verdict", type=click.Choice(VERDICTS), help="Your verdict on the hypothesis.")
@click.option("--note", "text", metavar="TEXT", help="Your note on the run.")
@click.option("--author", metavar="NAME", help="The author.  [default: the user of this machine]")
def note(
    pipeline: str,
    run: str,
    verdict: "HypothesisVerdict | None",
    text: str | None,
    author: str | None,
) -> None:
    """Record a verdict or a note on a run.

    Adds a verdict on the run's hypothesis, or a note, with its author and the time. Notes are only
    added; the newest is shown. They change no model, session or decision. Name the run by the
    beginning of its id or of its model's, by a stage, or by latest.
    """
    if not verdict and not (text or "").strip():
        raise click.UsageError("Say --verdict, --note, or both.")
    settings = prepared_settings()
    from ml_assets.actions.note import take_note, tell_mlflow

    story, taken = take_note(opened(pipeline), run, verdict, text, author or getpass.getuser())
    model = f", model {taken.model[:12]}" if taken.model else ""
    print(f"note by {taken.author} added to run {taken.run[:8]}{model}")
    behind = tell_mlflow(settings, story, taken)
    if behind:
        print(f"MLflow gets the note with the next run: {behind}")


@click.command
@options.pipeline
@options.open_page
def report(pipeline: str, open_page: bool) -> None:
    """Write the evaluation report and say where it is."""
    settings = prepared_settings()

    from ml_assets.assets.released_model.report_file import write_report
    from ml_assets.store.pipeline_context import open_pipeline

    page = write_report(open_pipeline(pipeline, settings))
    tell_page(page, open_page=open_page)


@click.command
@options.pipeline
@options.rows_out(default="table")
def suspects(pipeline: str, kind: str | None, target: Path | None) -> None:
    """List rows whose label may be wrong.

    Lists the rows of validation and holdout that the newest model is most wrong about, the highest
    loss first: their key, label, prediction and loss.
    """
    from ml_assets.assets.evaluation_report.suspect_labels import stored_suspects

    kind = row_format(kind, target, "table")
    hand_out(stored_suspects(opened(pipeline)), target, kind)


@click.command
@options.pipeline
@options.open_page
@options.as_json
def search(pipeline: str, open_page: bool, as_json: bool) -> None:
    """Show the results of the last search.

    Shows the best trials, whether they are better than luck, which fields mattered, and where to
    search next. Writes a page, and prints the short form. `ml-assets run PIPELINE --search` starts
    a search.
    """
    from ml_assets.assets.hyperparameter_search.page import (
        on_holdout,
        published_study,
        schedule_table,
        searched_by,
        trials_table,
        write_study_page,
    )
    from ml_assets.assets.hyperparameter_search.study_advice import boundaries, verdict

    of = opened(pipeline)
    study = published_study(of)
    if as_json:
        print(study.model_dump_json(indent=2) if study else "null")
        return
    if study is None:
        file = "" if of.search else "write search.yaml beside its spec (docs/search.md), then "
        said = f"{pipeline}: there was no search yet. Begin with: {file}ml-assets run {pipeline}"
        print(f"{said} --search")
        return
    by = searched_by(study)
    table = trials_table(study, by)
    for line in aligned([tuple(table.head), *(tuple(row) for row in table.rows[:_TRIALS])]):
        print(line)
    if schedule := schedule_table(study, by):
        print(f"\n{schedule.title}:")
        for line in aligned([tuple(schedule.head), *(tuple(row) for row in schedule.rows)]):
            print(line)
    edges = [f"edge  {one.said}" for one in boundaries(study, by, of.declared.spec)]
    for said in (
        "",
        *verdict(study),
        *on_holdout(of, study),
        *edges,
        f"Why it ended: {study.ended}.",
    ):
        print(said)
    tell_page(write_study_page(of, study), open_page=open_page)


_TRIALS = 10
"""Trials that are printed; the page has all."""

models = CommandGroup("models", help="Compare, judge, annotate and price runs and models.")
models.subject("Experiments", experiments, compare, note, search)
models.subject("Evaluation", report, suspects)
models.subject(
    "Cost and speed of training",
    of_extra("models cost", "Show machine hours and their cost, by what they were used for."),
    tune_batch,
    gpus,
)
