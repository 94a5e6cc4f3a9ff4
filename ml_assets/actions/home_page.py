"""Renders the first page: each pipeline, its model in production and who decided it, and links.

The page shows the ledger and the records; nothing of it is stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ml_assets.actions.model_history import Happened, history
from ml_assets.actions.status import standing_failure
from ml_assets.assets.drift_report.last_report import find_report
from ml_assets.assets.drift_report.windows import held_against
from ml_assets.errors import MlAssetsError, StorageError, counted, one_line
from ml_assets.load_extras import drawing_on
from ml_assets.records.ledger.stages import (
    decided_move,
    decision_line,
    override_line,
    stage_line,
    standing_abort,
)
from ml_assets.records.load_release import why_not
from ml_assets.records.recalls import recalled
from ml_assets.records.tracking.links import Links
from ml_assets.reports.picture import Tile, Verdict
from ml_assets.settings import Settings
from ml_assets.spec.drift import how_to_watch
from ml_assets.spec.load import pipeline_folders
from ml_assets.spec.records import LedgerEntry
from ml_assets.spec.stages import SEARCH_STAGE
from ml_assets.store.pipeline_context import Pipeline, open_pipeline

_TIME = "%Y-%m-%d %H:%M"


@dataclass(frozen=True)
class HomePageEntry:
    """A pipeline on the first page."""

    description: str
    verdict: Verdict
    tiles: tuple[Tile, ...]
    ways: Mapping[str, str]


def states(settings: Settings) -> dict[str, HomePageEntry]:
    """The state of every pipeline, by name; one that cannot be read says why."""
    return {name: _state(settings, name) for name in sorted(pipeline_folders(settings))}


def _state(settings: Settings, name: str) -> HomePageEntry:
    try:
        pipeline = open_pipeline(name, settings)
        lines = history(pipeline)
        found = (_decided(lines), _data(pipeline), _drift(pipeline), _canary(pipeline, lines))
        tiles = (*found, *_cost(pipeline))
        verdict = _verdict(pipeline, lines)
    except MlAssetsError as error:
        broken = Verdict("bad", "This pipeline cannot be read", tuple(str(error).splitlines()))
        return HomePageEntry("", broken, (), {})
    links = Links.of(settings)
    ways = {
        "Lineage": links.lineage(f"{name}/{pipeline.spec.release.shown_by}"),
        "Experiments": links.experiments(name),
        **({"Report": links.report(name, lines[0].entry.model)} if lines else {}),
        **({"Search": links.search(name)} if _was_searched(pipeline) else {}),
        "Data card": links.card(name, "feature_set", None),
        "MLflow": links.registered_model(name),
        "Sensors": links.automation(),
    }
    return HomePageEntry(pipeline.spec.description, verdict, tiles, ways)


def _was_searched(pipeline: Pipeline) -> bool:
    return pipeline.now().record(pipeline.address(SEARCH_STAGE)) is not None


def _verdict(pipeline: Pipeline, lines: tuple[Happened, ...]) -> Verdict:
    stage = pipeline.spec.release.to
    entries = [one.entry for one in reversed(lines)]
    move = stage_line(entries, stage)
    failed = standing_failure(pipeline)
    failure = (f"{failed[0].upper()}{failed[1:]}",) if failed else ()
    if move is None:
        why = failure or _refused_last(pipeline.name, lines)
        again = f"ml-assets run {pipeline.name}"
        if not why or again not in why[0]:  # what was interrupted says itself how it goes on
            why = (*why, f"After that is mended: {again}" if why else again)
        return Verdict("wait", f"Nothing is in {stage} yet", why)
    bad = recalled(pipeline.store, pipeline.store.resolve(), pipeline.name, move.model)
    said = _came(entries, move)
    headline = f"Model {move.model[:12]} is in {stage}"
    if bad is not None:
        recall = f"It is recalled: {one_line(bad.reason)}"
        return Verdict("bad", headline, (recall, *said, *failure))
    calm = len(said) == 1 and not failure
    return Verdict("good" if calm else "wait", headline, (*said, *failure))


def _refused_last(name: str, lines: tuple[Happened, ...]) -> tuple[str, ...]:
    """Which gates refused the model that was decided on last, and where the evidence is."""
    last = next((one.entry for one in lines if one.entry.decision is not None), None)
    if last is None or last.decision is None or last.decision.passed:
        return ()
    said = f"Model {last.model[:12]} was refused{_why(last.decision.reason)}"
    return (said, f"The evidence: ml-assets models report {name} --open")


def _why(reason: str) -> str:
    """What follows the word "refused"; the reason of the gates begins with that word itself."""
    said = one_line(reason)
    return said.removeprefix("refused") if said.startswith("refused by ") else f": {said}"


def _came(entries: Sequence[LedgerEntry], move: LedgerEntry) -> tuple[str, ...]:
    """How a model came to its stage, and that it was refused since, where it was."""
    way = "rolled back to by" if move.because else "by"
    said = f"{one_line(move.author)}: {one_line(move.reason)}"
    since = f"since {move.time.astimezone(UTC):{_TIME}} UTC, {way} {said}"
    refusal = _refused_since(entries, move)
    if refusal is None:
        return (since,)
    when = f"{refusal.time.astimezone(UTC):{_TIME}} UTC (ledger line {refusal.seq})"
    return (
        since,
        f"It was released before, and refused since, on {when}{_why(refusal.reason)}. It"
        " stays until another model is released or somebody rolls back.",
    )


def _refused_since(entries: Sequence[LedgerEntry], move: LedgerEntry) -> LedgerEntry | None:
    """The newest decision on the model of a move, where it refused what was released before and
    nobody answers for it; from the lines alone, without a look at certificates and files.

    Args:
        move: the line that put the model in its stage.
    """
    led = move if move.because is None else decided_move(entries, move.model)
    newest = decision_line(entries, move.model)
    if led is None or newest is None or newest.seq < led.seq or not why_not(newest):
        return None
    return None if override_line(entries, newest) else newest


def _decided(lines: tuple[Happened, ...]) -> Tile:
    """What the gates, or a person, said last."""
    last = next((one for one in lines if one.entry.decision is not None), None)
    if last is None or last.entry.decision is None:
        return Tile("last decision", "none", "no model was judged yet")
    passed = last.entry.decision.passed
    what = "passed" if passed else "refused"
    said = f"model {last.entry.model[:12]}, {last.entry.time.astimezone(UTC):{_TIME}} UTC"
    why = "" if passed else _why(last.entry.decision.reason)
    about = f"{last.metric}; {said}{why}".removeprefix("; ")
    return Tile("last decision", what, about, "" if passed else "bad")


def _data(pipeline: Pipeline) -> Tile:
    state = pipeline.now()
    recent = state.recent(pipeline.address("feature_set"))
    if not recent:
        return Tile("newest features", "none", "no table was published yet")
    newest = recent[-1]
    made = f"made {newest.time.astimezone(UTC):{_TIME}} UTC, {_ago(newest.time)}"
    return Tile("newest features", newest.partition or counted(newest.rows or 0, "row"), made)


def _drift(pipeline: Pipeline) -> Tile:
    if pipeline.spec.drift is None:
        return Tile("drift", "not watched", how_to_watch(pipeline.spec.partitions.cadence))
    try:
        held = held_against(pipeline.now())
        if isinstance(held, str):
            return Tile("drift", "not looked for", held)
        found = find_report(pipeline)
    except StorageError:
        return Tile("drift", "nothing new", "no period is newer than the data of the release")
    if found.outdated:
        return Tile("drift", "outdated", found.outdated)
    alarm = found.report.alarm
    if alarm is not None:
        return Tile("drift", "alarm", alarm.reason, "bad")
    return Tile("drift", "none", f"up to {found.report.newest.period}")


def _canary(pipeline: Pipeline, lines: tuple[Happened, ...]) -> Tile:
    if pipeline.spec.release.canary == "none":
        return Tile("canary", "not asked for", f"the gates lead to {pipeline.spec.release.to}")
    entries = [one.entry for one in reversed(lines)]
    move, out = stage_line(entries, "canary"), standing_abort(entries)
    if out is not None:
        why = one_line(out.reason)
        said = f"model {out.model[:12]}, {out.time.astimezone(UTC):{_TIME}} UTC: {why}"
        return Tile("canary", "out", said, "bad")
    if move is None:
        return Tile("canary", "none", "no model is in canary")
    rollout = pipeline.spec.release.rollout
    share = f"{rollout.share:.0%} of traffic" if rollout else "on its way"
    said = f"model {move.model[:12]}, since {move.time.astimezone(UTC):{_TIME}} UTC"
    return Tile("canary", share, said)


def _cost(pipeline: Pipeline) -> list[Tile]:
    """What an extra that counts says of this month."""
    now = datetime.now(UTC)
    found = (extra.this_month(pipeline, now) for extra in drawing_on("home"))
    return [Tile("machines this month", value, said) for value, said in found]


def _ago(then: datetime) -> str:
    hours = (datetime.now(UTC) - then).total_seconds() / 3600
    number, unit = (hours * 60, "minute") if hours < 2 else (hours, "hour")
    return f"{counted(round(number), unit)} ago"
