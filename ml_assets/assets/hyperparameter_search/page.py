"""The pictures of a study: which fields mattered, how trials learned, what to do next."""

from collections.abc import Sequence
from pathlib import Path

from ml_assets.assets.hyperparameter_search.study_advice import (
    boundaries,
    groups_of,
    isolated,
    luck,
    place,
    spread,
    verdict,
)
from ml_assets.errors import counted
from ml_assets.records.tracking.links import SEARCH_PAGE
from ml_assets.reports.drawing import Axis, Bar, Series, bar_chart, line_chart
from ml_assets.reports.inline_pictures import glance_at_bars
from ml_assets.reports.page import page
from ml_assets.reports.picture import Picture, Table
from ml_assets.reports.row_charts import Thread, Upright, parallel_chart
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.records import REPORT_FILE, ChampionComparison, EvaluationReport, Interval
from ml_assets.spec.search import SearchSpec
from ml_assets.spec.search_parameter import Parameter
from ml_assets.spec.stages import SEARCH_STAGE
from ml_assets.spec.study_record import STUDY_FILE, Study, Trial
from ml_assets.store.pipeline_context import Pipeline

MOST_LINES = 200
"""Trials that are drawn: the best of those that finished, then the others."""
_ROWS = 100
_FEW = "Which parameters matter is estimated once four trials were trained to their end."
_SHORT = 8
_ORDER = (
    "Trials that finished, the best first; then those that were stopped early, whose losses are"
    " of less training."
)


def at_a_glance(study: Study) -> str:
    """Markdown of the spec's own loss and those of the best trials."""
    own = study.own
    best = [one for one in study.finished if one is not own][:3]
    shown = [(one.loss, _named(one)) for one in (own, *best) if one.loss is not None]
    bars = [Bar(name, loss) for loss, name in sorted(shown)]
    start = 0.9 * bars[0].value if bars[0].value > 0 else bars[0].value
    return glance_at_bars(f"{study.judged_by}, lower is better", bars, start)


def study_pictures(study: Study, search: SearchSpec) -> list[Picture]:
    """All pictures of a study."""
    shown = _shown(study)
    found = [*_isolation(study, search), *_importances(study)]
    return [*found, _learning(study, shown)]


def _shown(study: Study) -> Sequence[Trial]:
    """The trials that are drawn, the best one last: it lies above the others."""
    rest = [one for one in study.trials if one.end != "finished" and one.curve]
    chosen = [*study.finished, *rest][:MOST_LINES]
    return [one for one in reversed(chosen) if one.loss is not None]


def _isolation(study: Study, search: SearchSpec) -> list[Picture]:
    found: list[Picture] = []
    for path, values in isolated(study, search).items():
        if not values:
            continue
        low, high = min(one.best for one in values), max(one.high for one in values)
        start = low - max(high - low, 1e-4) * 0.4
        best = min(values, key=lambda one: one.best)
        bars = [
            Bar(
                f"{one.label} ({one.trials})",
                one.best,
                one.best,
                one.high,
                "one" if one is best else "plain",
            )
            for one in values
        ]
        left = [v for v in groups_of(search.parameters[path]) if v not in {o.label for o in values}]
        none = f" With {' or '.join(left)} no trial was trained to its end." if left else ""
        words = (
            f"The best {study.judged_by} for each value, whatever the nuisance parameters were; in"
            " brackets the number of trials with it. The whisker ends at the 97.5th percentile of"
            f" the best of as many trials (bootstrap). Bars do not begin at 0.{none}"
        )
        drawn = bar_chart(f"best loss by {path}", bars, start=start, digits=5)
        found.append(Picture(f"What {path} does", words, drawn))
    return found


def _importances(study: Study) -> list[Picture]:
    if not study.importances:
        return []
    ordered = sorted(study.importances.items(), key=lambda item: -item[1])
    bars = [Bar(path.partition(".")[2], value) for path, value in ordered]
    words = (
        "The share of the differences in loss that each parameter explains alone or with others"
        " (fANOVA, over the trials that finished). Few trials say little."
    )
    drawn = bar_chart("importance of each parameter", bars, start=0.0, digits=2)
    return [Picture("What matters", words, drawn)]


def _learning(study: Study, shown: Sequence[Trial]) -> Picture:
    best = study.best
    series = [
        Series(
            "",
            [(100 * x, y) for x, y in one.curve],
            "plain" if one.end == "pruned" else "one",
            thin=True,
        )
        for one in shown
        if one is not best
    ]
    if study.own is not best:
        own = [(100 * x, y) for x, y in study.own.curve]
        series.append(Series("the spec's own", own, "three"))
    whole = [(100 * x, y) for one in study.schedule for x, y in one.curve]
    series.append(Series("the best", whole, "two"))
    losses = [y for one in shown for _, y in one.curve]
    top = sorted(losses)[int(0.95 * (len(losses) - 1))] if losses else None
    drawn = line_chart(
        f"{study.judged_by} of each trial",
        series,
        Axis("percent of the training", 0, 100),
        Axis(study.judged_by, high=top),
        wide=True,
    )
    rounds = (
        "Each piece is a round of a member, which continues from its own weights or from better "
        "ones."
    )
    words = "Grey lines end where a trial was pruned." if best.round is None else rounds
    return Picture("How they learned", words, drawn)


def parallel_coordinates(study: Study, search: SearchSpec) -> Picture:
    """One line for each trial, through its values to its loss; the best ones are coloured."""
    shown, searched = _shown(study), search.searched
    losses = [one.loss or 0.0 for one in shown]
    low = min(losses, default=0.0)
    high = sorted(losses)[int(0.9 * (len(losses) - 1))] if losses else 1.0
    axes = [Upright(path.partition(".")[2], _ticks(one)) for path, one in searched.items()]
    axes.append(Upright(study.judged_by, [(0.0, f"{high:.4f} or more"), (1.0, f"{low:.4f}")]))
    best = {one.number for one in study.finished[: max(1, len(study.finished) // 10)]}
    threads = [
        Thread(
            _named(one),
            [
                *(place(p, one.values[path]) for path, p in searched.items()),
                1 - min(max(((one.loss or 0.0) - low) / (high - low or 1.0), 0.0), 1.0),
            ],
            "two" if one.number in best else "plain" if one.end == "pruned" else "one",
            thin=one.number not in best,
        )
        for one in shown
    ]
    words = (
        "Each line is a trial, from its values to its loss: the better, the higher. The best tenth"
        " is coloured, what was pruned is grey."
    )
    drawn = parallel_chart("parameters and loss of each trial", axes, threads)
    return Picture("Where trials went", words, drawn)


def _ticks(one: Parameter) -> list[tuple[float, str]]:
    if one.kind == "choice":
        return [(place(one, value), str(value)) for value in one.values]
    return [(0.0, f"{one.bounds[0]:g}"), (1.0, f"{one.bounds[1]:g}")]


def _named(one: Trial) -> str:
    if one.own:
        return "the spec's own setting"
    return f"trial {one.number}" + ("" if one.round is None else f", round {one.round + 1}")


def schedule_table(study: Study, search: SearchSpec) -> Table | None:
    """The rounds on the way to the best, of a population; None: the best is a setting."""
    if study.best.round is None:
        return None
    paths = [*search.searched]
    rows = [
        (str((one.round or 0) + 1), f"{one.loss:.5f}", *(str(one.values[path]) for path in paths))
        for one in study.schedule
    ]
    words = (
        "The settings of each round on the way to the best. A spec cannot express them, because a"
        " model is trained with one setting; if they fall steadily, try a training.schedule."
    )
    heads = [path.partition(".")[2] for path in paths]
    return Table(
        "The schedule that the best followed", words, ("round", study.judged_by, *heads), rows
    )


def trials_table(study: Study, search: SearchSpec) -> Table:
    """The trials: those that finished, the best first, then those that did not."""
    paths = [*search.searched]
    rest = [one for one in study.trials if one.end != "finished" or one.loss is None]
    rest.sort(key=lambda one: (one.loss is None, one.loss))
    rows = [
        (
            _named(one),
            "–" if one.loss is None else f"{one.loss:.5f}",
            *(str(one.values[path]) for path in paths),
            one.end,
            f"{100 * max((x for x, _ in one.curve), default=0.0):.0f} %",
            time_said(one.machine_hours),
        )
        for one in [*study.finished, *rest][:_ROWS]
    ]
    left = len(study.trials) - len(rows)
    words = _ORDER if rest else "The best first."
    words += f" {left} more are in study.json." if left > 0 else ""
    heads = [path.partition(".")[2] for path in paths]
    return Table(
        "Trials", words, ("", study.judged_by, *heads, "ended", "trained", "machine"), rows
    )


def time_said(hours: float) -> str:
    """Hours of a machine in the unit that people would say them in."""
    seconds = 3600 * hours
    if seconds < 99.5:
        return f"{seconds:.0f} s" if seconds >= 9.95 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if hours < 2 else f"{hours:.1f} h"


def on_holdout(pipeline: Pipeline, study: Study) -> tuple[str, ...]:
    """Return what the holdout says of the winner's model; nothing: there is none."""
    state = pipeline.now()
    model = state.record(state.address("trained_model"))
    report = state.record(state.address("evaluation_report"))
    by = model.attributes.get("search") if model else None
    if model is None or report is None or not by or by["study"] != study.name:
        return ()
    found = EvaluationReport.model_validate_json(
        state.read_bytes(state.address("evaluation_report").file(REPORT_FILE))
    )
    if found.model != model.data_version:
        return ()
    against = found.champion
    apart = against.loss_difference if against else None
    if against is None or apart is None:
        return ("The holdout had no other champion to compare its model with.",)
    return (against_champion(against, apart, study),)


def against_champion(against: ChampionComparison, apart: Interval, study: Study) -> str:
    """Return how the model by the winner compares with the champion, and whether seeds could do as
    much.

    Args:
        apart: the mean loss of the former minus that of the latter.
    """
    word = "better" if apart.high < 0 else "worse" if apart.low > 0 else "no clear difference"
    said = (
        f"On the holdout the mean {against.loss} of its model minus the champion's is"
        f" {apart.value:+.5f} (95 %: {apart.low:+.5f} to {apart.high:+.5f}"
    )
    if against.seeds:
        return f"{said}, seeds included): {word}."
    margin = luck(study)
    if margin is None or study.judged_by != "validation loss" or against.loss != "log-loss":
        return f"{said}; other seeds are not in it): {word}."
    beyond = "more than" if abs(apart.value) > margin else "no more than"
    return (
        f"{said}): {word}. That is {beyond} the usual difference between two seeds of one setting"
        f" on validation ({margin:.5f})."
    )


def study_page(
    study: Study, search: SearchSpec, spec: PipelineSpec, holdout: Sequence[str] = ()
) -> str:
    """The page of a study, one HTML document that loads nothing.

    Args:
        holdout: what it says of the model by the winner.
    """
    said = (*verdict(study), *holdout)
    edges = [one.said for one in boundaries(study, search, spec)]
    found = spread(study)
    ends = {end: sum(1 for t in study.trials if t.end == end) for end in ("finished", "pruned")}
    best, own = study.best.loss or 0.0, study.own.loss
    tiles = [
        {"name": "Best", "value": f"{best:.5f}", "below": _named(study.best)},
        {
            "name": "The spec's own",
            "value": "–" if own is None else f"{own:.5f}",
            "below": study.judged_by,
        },
        {
            "name": "Seeds",
            "value": "–" if found is None else f"± {found:.5f}",
            "below": "not measured"
            if found is None
            else f"deviation of {counted(len(study.seeds), 'seed')}",
        },
        {
            "name": "Trials",
            "value": str(len(study.trials)),
            "below": f"{ends['finished']} finished, {ends['pruned']} pruned;"
            f" {time_said(study.machine_hours)} of machines",
        },
    ]
    return page(
        "study.html",
        study=study,
        lead=said[0],
        verdict=said[1:],
        edges=edges,
        tiles=tiles,
        coordinates=parallel_coordinates(study, search),
        pictures=study_pictures(study, search),
        few="" if study.importances or study.best.round is not None else _FEW,
        schedule=schedule_table(study, search),
        trials=trials_table(study, search),
    )


def asset_pictures(study: Study) -> list[Picture | Table]:
    """Return what the asset page shows: all pictures, and the best trials."""
    search = searched_by(study)
    table = trials_table(study, search)
    words = table.words if len(study.finished) < _SHORT else "The best first."
    best = Table(table.title, words, table.head, table.rows[:_SHORT])
    schedule = schedule_table(study, search)
    found = [parallel_coordinates(study, search), *study_pictures(study, search)]
    return [*found, *([schedule] if schedule else []), best]


def searched_by(study: Study) -> SearchSpec:
    """The search that a study was by; ``search.yaml`` may say something else since."""
    return SearchSpec.model_validate(study.search)


def published_study(pipeline: Pipeline) -> Study | None:
    """The study that was published last; None: there was none.

    Raises:
        StorageError: its record is damaged.
    """
    state, address = pipeline.now(), pipeline.address(SEARCH_STAGE)
    if state.record(address) is None:
        return None
    return Study.model_validate_json(state.read_bytes(address.file(STUDY_FILE)))


def write_study_page(pipeline: Pipeline, study: Study) -> Path:
    """Write ``reports/<pipeline>/search.html`` and return where it is."""
    said = on_holdout(pipeline, study)
    html = study_page(study, searched_by(study), pipeline.declared.spec, said).encode()
    return pipeline.objects.write_bytes(html, "reports", pipeline.name, SEARCH_PAGE)
