"""ml-assets status: a pipeline's assets and its release; with --json their inputs, too."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ml_assets.cli import options
from ml_assets.cli.session import prepared_settings
from ml_assets.errors import counted
from ml_assets.settings import Settings, read_settings

if TYPE_CHECKING:
    from ml_assets.store.pipeline_context import Pipeline


@click.command
@options.any_pipeline
@options.as_json
def status(pipeline: str | None, as_json: bool) -> None:
    """Show a pipeline's assets and its release.

    Without PIPELINE it lists all pipelines, and where each of them stands. `ml-assets run
    --dry-run` says what is due.

    \b
      ml-assets status flight_delays --json   every version, and its inputs
    """
    settings = read_settings()
    if _is_begun(settings):
        settings = prepared_settings()
    if pipeline is None:
        if as_json:
            raise click.UsageError("Name a PIPELINE: --json is the whole state of one.")
        _print_all(settings)
        return
    from ml_assets.store.pipeline_context import open_pipeline

    opened = open_pipeline(pipeline, settings)
    document = _status(opened)
    if as_json:
        print(json.dumps(document, indent=2))
        return
    _print_stages(document, settings)
    _print_release(document)
    if _is_begun(settings):
        _print_tracking(opened)


def _print_all(settings: Settings) -> None:
    """Print a line for each pipeline, as the first page of the UI has it."""
    from ml_assets.spec.load import pipeline_folders

    names = sorted(pipeline_folders(settings))
    if not names:
        print("there is no pipeline yet; make one: ml-assets new NAME --from FILE --label COLUMN")
        return
    if not _is_begun(settings):
        print(f"nothing is made yet in the state folder {settings.home}")
        print(f"make it: ml-assets run PIPELINE, one of {', '.join(names)}")
        return
    from ml_assets.actions.home_page import states

    width = max(map(len, names))
    for name, state in states(settings).items():
        headline, why = state.verdict.headline, (*state.verdict.reasons, "")[0]
        said = why.partition("\n")[0]
        print(f"{name:{width}}  {headline}{f': {said}' if said else ''}")
    print("more of one: ml-assets status PIPELINE")


def _print_tracking(pipeline: "Pipeline") -> None:
    from ml_assets.records.tracking.mlflow import Tracking
    from ml_assets.records.tracking.projection import shown_otherwise

    wrong = shown_otherwise(pipeline.store, Tracking.of(pipeline.settings), pipeline.name)
    if wrong:
        print(f"  note: {wrong}")


def _refused(version: str, release: Mapping[str, Any] | None) -> str:
    """The newest model is refused: beside the release, or it is the release, judged again."""
    if release is None:
        return f"the newest model, {version[:12]}, is refused"
    if release["version"] == version:
        return (
            f"model {version[:12]} was judged again, on other rows or by other gates, and refused;"
            f" it is in {release['stage']} and stays there until another one is released or"
            " somebody rolls back"
        )
    return f"the newest model, {version[:12]}, is refused; the release below stays"


def print_release(pipeline: "Pipeline") -> None:
    """Print the release: stage, gates, decision; before it why there is no newer one."""
    _print_release(_status(pipeline))


def _print_release(document: Mapping[str, Any]) -> None:
    name, release, refusal = document["pipeline"], document["release"], document["refusal"]
    if document["failure"]:
        print(f"{name}: {document['failure']}")
    unsound = [check for check in document["sanity"] or () if check["outcome"] == "failed"]
    if unsound:
        print(
            f"{name}: no model was trained from the newest training set, because"
            " the network or the set did not pass its checks"
        )
        for check in unsound:
            print(f"  [fail] {check['name']}: {check['reason']}")
    if refusal is not None:
        print(f"{name}: {_refused(refusal['version'], release)}")
        if release is None or refusal["version"] != release["version"]:  # else they stand below
            _print_gates(refusal["gates"])
        if refusal["what_now"]:
            print(f"  note: {refusal['what_now']}")
        print(f"  every decision, and why: ml-assets release history {name}")
    canary = document["canary"]
    if canary is not None:
        said = canary["decision"] or "it waits for rows that are newer than its holdout"
        if canary["recalled"]:
            said = f"RECALLED, so it is not used and goes no further ({canary['recalled']})"
        print(f"{name}: model {canary['version'][:12]} is in canary: {said}")
    if release is None:
        print(f"{name}: nothing is released yet")
        return
    print(f"{name}: {release['stage']} is model {release['version'][:12]}")
    if release["recalled"]:
        print(f"  RECALLED: it {release['recalled']}")
    elif release["unusable"]:
        print(f"  [fail] the model cannot be used: {release['unusable']}")
    _print_gates(release["gates"])
    print(f"  decision: {release['decision']}, {release['reason']}")
    if (release["processes"] or 0) > 1:
        print(f"  trained on {counted(release['processes'], 'process')}")
    if document["drift"]:
        print(f"  [warn] drift: {document['drift']}")
    for note in (release["simpler"], *release["doubts"]):
        if note:
            print(f"  note: {note}")
    override = release["override"]
    if override:
        print(f"  OVERRIDE by {override['author']} (line {override['seq']}): {override['reason']}")


def _print_gates(gates: list[dict[str, Any]]) -> None:
    for gate in gates:
        print(f"  [{'pass' if gate['passed'] else 'fail'}] {gate['name']}: {gate['reason']}")


def _status(pipeline: "Pipeline") -> dict[str, Any]:
    from ml_assets.actions.status import status
    from ml_assets.adapters.resources import LauncherResource
    from ml_assets.records.load_release import check_release

    launcher = LauncherResource().launcher(pipeline)
    document = status(pipeline, launcher, begun=_is_begun(pipeline.settings))
    if document["release"]:
        document["release"].update(asdict(check_release(pipeline)))
    return document


def _is_begun(settings: Settings) -> bool:
    """Whether anything can be there to tell: a question makes no state folder."""
    from ml_assets.store.open import has_snapshots

    return settings.home.exists() or has_snapshots(settings.snapshots)


def _print_stages(document: dict[str, Any], settings: Settings) -> None:
    by_key: dict[str, list[dict[str, Any]]] = {}
    for stage in document["stages"]:
        by_key.setdefault(stage["key"], []).append(stage)
    if not by_key:
        print(f"nothing is made yet in the state folder {settings.home}")
        print(f"make it: ml-assets run {document['pipeline']}; or go to the folder it was made in,")
        print("or set ML_ASSETS_HOME")
    for key in [*by_key, *(key for key in document["failed"] if key not in by_key)]:
        failed = [one or "all of it" for one in document["failed"].get(key, [])]
        left = f"  NOT MADE: {', '.join(failed)}" if failed else ""
        if not (stages := by_key.get(key, [])):
            print(f"{key:44}{left}")
            continue
        newest = max(stages, key=lambda stage: stage["time"])
        rows = sum(stage["rows"] or 0 for stage in stages)
        parts = f"{counted(len(stages), 'partition')}, " if newest["partition"] else ""
        size = f"{counted(rows, 'row')}, " if rows else ""
        bad = sum(stage["recalled"] is not None for stage in stages)
        mark = f"  RECALLED ({bad} of {len(stages)})" if bad else ""
        last = f"{newest['partition']} is " if len(stages) > 1 else ""
        version = f"{last}{newest['version'][:12]}"
        print(f"{key:44} {parts}{size}{version}  {newest['time'][:19]}Z{mark}{left}")
        for reason in newest["warnings"]:
            print(f"  [warn] {reason}")
