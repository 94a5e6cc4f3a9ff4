"""Finds the runs of a pipeline: the last ones, one by its name, those with a model."""

from collections.abc import Sequence

from ml_assets.errors import UnknownRun, counted, own_lines
from ml_assets.records import experiments
from ml_assets.records.data_failures import data_failure, log_of
from ml_assets.records.experiments import STOPPED, RunFolder, RunStory
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import override_line, stage_of, stages
from ml_assets.records.model_changes import Candidate
from ml_assets.records.tracking.links import Links, report_name
from ml_assets.reports.run_rows import Row, RunStatus
from ml_assets.spec.records import Decision, LedgerEntry
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.snapshots import MAIN

LAST = 20
"""Runs that are shown unless told otherwise."""
_FAILED = "failed at "
_INTERRUPTED = "interrupted at "
_FIRST = 4
"""Fewest characters that name a run or a model."""


def stories(pipeline: Pipeline, last: int = LAST) -> tuple[RunStory, ...]:
    """The last runs of a pipeline, newest first.

    Raises:
        StorageError: a record cannot be read.
    """
    commit = pipeline.store.resolve(MAIN)
    found = experiments.folders(pipeline.store, commit, pipeline.name)[:last]
    return tuple(experiments.read(pipeline.store, commit, folder) for folder in found)


def find(pipeline: Pipeline, wanted: str) -> RunStory:
    """A run by the beginning of its id or of its model's digest, by a stage, or ``latest``.

    Of several runs that came to one model it is the newest.

    Raises:
        UnknownRun: there is none, or it could be several.
    """
    commit = pipeline.store.resolve(MAIN)
    folders = experiments.folders(pipeline.store, commit, pipeline.name)
    if wanted == "latest" and folders:
        return experiments.read(pipeline.store, commit, folders[0])
    in_stage = {str(k): v for k, v in stages(read(pipeline.store, pipeline.name)).items()}.get(
        wanted
    )
    found: dict[str, RunFolder] = {}
    for folder in folders:
        model = experiments.model_of(pipeline.store, commit, folder) or ""
        if in_stage is not None and model == in_stage:
            return experiments.read(pipeline.store, commit, folder)
        if len(wanted) >= _FIRST and folder.run.startswith(wanted):
            found[folder.run] = folder
        elif len(wanted) >= _FIRST and model.startswith(wanted):
            found.setdefault(model, folder)
    if len(found) == 1:
        return experiments.read(pipeline.store, commit, next(iter(found.values())))
    if found:
        several = ", ".join(name[:12] for name in found)
        raise UnknownRun(
            f"{wanted!r} could be several runs or models of {pipeline.name}: {several}. Give more"
            " of it."
        )
    known = ", ".join(folder.run[:8] for folder in folders[:5]) or "none"
    raise UnknownRun(
        f"{pipeline.name} has no run, model or stage {wanted!r}. Give a stage, latest, or"
        f" {_FIRST} characters or more of a run's id or a model's digest. The newest runs: {known}."
        f" See ml-assets models experiments {pipeline.name}"
    )


def candidate(story: RunStory) -> Candidate:
    """A run as it is compared: its spec, data and report, as far as it came."""
    spec = story.record.config if story.record else story.begun.config if story.begun else {}
    return Candidate(spec, story.data, story.report)


def by_model(pipeline: Pipeline, models: set[str]) -> dict[str, RunStory]:
    """Model -> the newest run that came to it."""
    commit = pipeline.store.resolve(MAIN)
    found: dict[str, RunStory] = {}
    for folder in experiments.folders(pipeline.store, commit, pipeline.name):
        model = experiments.model_of(pipeline.store, commit, folder)
        if model in models and model not in found:
            found[model] = experiments.read(pipeline.store, commit, folder)
    return found


def rows(pipeline: Pipeline, last: int = LAST) -> tuple[Row, ...]:
    """The last runs as rows of the experiments page, newest first."""
    entries = read(pipeline.store, pipeline.name)
    return tuple(_row(pipeline, story, entries) for story in stories(pipeline, last))


def last_failure(pipeline: Pipeline) -> str | None:
    """Return what failed last and stands, and why, to people at this machine; None: nothing did.

    That is a partition of a data stage that was not made since, else a step of the newest run.
    """
    if data := data_failure(pipeline.now()):
        return data
    newest = next(iter(rows(pipeline, 1)), None)
    if newest is None or not newest.outcome.said.startswith((_FAILED, _INTERRUPTED)):
        return None
    when = f"{newest.time:%Y-%m-%d %H:%M} UTC"
    if newest.outcome.said.startswith(_INTERRUPTED):
        return (
            f"the last run, {newest.run[:8]} of {when}, was {newest.outcome.said}. What was made is"
            f" kept, and the next run goes on from there: ml-assets run {pipeline.name}"
        )
    why = own_lines(newest.outcome.why)
    said = f"the last run, {newest.run[:8]} of {when}, {newest.outcome.said}: {why}"
    return f"{said}{log_of(newest.run)}"


def _row(pipeline: Pipeline, story: RunStory, entries: Sequence[LedgerEntry]) -> Row:
    begun, spent, digest = story.begun, story.spent, story.digest
    note = story.notes[-1] if story.notes else None
    data, told = story.data, story.data.attributes if story.data else {}
    page = digest and pipeline.objects.exists("reports", pipeline.name, report_name(digest))
    tracked = story.model.attributes.get("mlflow_run") if story.model else None
    verdict = next((n.verdict for n in reversed(story.notes) if n.verdict), None)
    return Row(
        run=story.folder.run,
        time=story.folder.begun,
        model=digest,
        report=report_name(digest) if digest and page else None,
        mlflow=Links.of(pipeline.settings).tracking_run(tracked) if tracked else None,
        outcome=_outcome(story, entries),
        stage=stage_of(entries, digest) if digest else None,
        words=begun.words.said() if begun else {},
        verdict=verdict,
        note=note.note if note else None,
        author=note.author if note else None,
        metrics=story.report.metrics if story.report else {},
        validation_loss=spent.validation_loss if spent else None,
        seconds=spent.seconds if spent else None,
        cost=_cost(story),
        rows=told.get("rows", {}).get("train"),
        as_of=told.get("as_of"),
        data=data.data_version if data else None,
    )


def _outcome(story: RunStory, entries: Sequence[LedgerEntry]) -> RunStatus:
    """What the run came to; a failure counts unless the step ended well after all."""
    failed, line = story.failed, _decision(story, entries)
    made = {"training_set": story.data, "trained_model": story.model}
    refused = line is not None and line.decision is not None and not line.decision.passed
    ended = failed is not None and not made.get(failed.stage)
    if failed and ended and failed.reason == STOPPED:
        return RunStatus(
            "wait", f"{_INTERRUPTED}{failed.stage}", "The next run goes on from there."
        )
    if failed and ended and not (failed.stage == "released_model" and refused):
        return RunStatus("bad", f"{_FAILED}{failed.stage}", failed.reason)
    if line is not None and line.decision is not None:
        return _judged(line, line.decision, entries)
    if story.digest is None and story.study is not None:
        told = story.study.attributes
        best = f"the winner is trial {told.get('winner')}"
        if told.get("winner") is None:
            best = "none is known to be better than the spec's own setting"
        return RunStatus("good", "searched", f"{counted(told['trials'], 'trial')}; {best}.")
    if story.digest is None:
        return RunStatus("wait", "no end recorded", "It is running, or its process was killed.")
    return RunStatus("wait", "not judged", "No decision on this model is in the ledger.")


def _judged(line: LedgerEntry, decision: Decision, entries: Sequence[LedgerEntry]) -> RunStatus:
    gates = [gate for gate in decision.gates if not gate.passed]
    why = "; ".join(f"{gate.name}: {gate.reason}" for gate in gates) or decision.reason
    if decision.passed:
        return RunStatus("good", "passed", why)
    said = f"refused by {', '.join(gate.name for gate in gates) or 'the gates'}"
    override = override_line(entries, line)
    if override is not None:
        said = f"{said}; OVERRIDDEN by {override.author}"
        why = f"{why}. Overridden: {override.reason}"
    return RunStatus("bad", said, why)


def _decision(story: RunStory, entries: Sequence[LedgerEntry]) -> LedgerEntry | None:
    """The decision of the run, or the one that stood when it came to the same once more."""
    lines = [e for e in entries if e.decision and e.model == story.digest]
    own = [line for line in lines if line.run == story.folder.run]
    stood = [line for line in lines if line.time <= story.folder.begun]
    return next(iter([*reversed(own), *reversed(stood), *lines]), None)


def _cost(story: RunStory) -> float | None:
    spent = story.spent
    if spent is None or spent.price_per_hour is None:
        return None
    return spent.seconds / 3600 * spent.world.nodes * spent.price_per_hour
