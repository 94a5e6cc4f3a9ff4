"""ml-assets release: a pipeline's ledger, the moves of its models, the proofs of a release."""

import json
import sys
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ml_assets.cli import options
from ml_assets.cli.groups import CommandGroup, of_extra
from ml_assets.cli.output import DONE, ERROR, REFUSED, aligned, tell
from ml_assets.cli.release_render import render
from ml_assets.cli.session import opened, prepared_settings
from ml_assets.errors import counted, one_line
from ml_assets.settings import read_settings

if TYPE_CHECKING:
    from ml_assets.actions.model_history import Happened
    from ml_assets.actions.verify import Verification
    from ml_assets.records.ledger.replay import Replay, Replayed
    from ml_assets.spec.records import LedgerEntry
    from ml_assets.store.pipeline_context import Pipeline

SCHEMA = 1
_HEAD = ("when (UTC)", "model", "what", "metric", "author", "why")


@click.command
@options.pipeline
@options.as_json
@click.option(
    "--check",
    is_flag=True,
    help="Check that the ledger is consistent: one champion at every moment, each by a "
    "decision or by a person.  (exit code 1: it is not)",
)
def history(pipeline: str, as_json: bool, check: bool) -> int:
    """List every decision and move of a pipeline's models.

    Shows the ledger of a pipeline, newest first: decisions, refusals, moves, overrides, rollbacks;
    for each one the model, the metric, the reason and the author.
    """
    from ml_assets.actions.model_history import document, history, recall_of
    from ml_assets.records.ledger.stages import stages
    from ml_assets.records.load_release import check_release
    from ml_assets.records.tracking.projection import repair_projection

    of = opened(pipeline)
    if check:
        return _check_ledger(of)
    repaired = repair_projection(of.store, of.settings, of.name)
    if repaired:
        print(repaired, file=sys.stderr)
    if as_json:
        print(json.dumps(document(of), indent=2))
        return DONE
    lines = history(of)
    if not lines:
        print(f"{pipeline}: nothing is decided yet. Begin with: ml-assets run {pipeline}")
    for line in aligned([_HEAD, *(_cells(one) for one in lines)]) if lines else []:
        print(line)
    for stage, model in stages([one.entry for one in reversed(lines)]).items():
        bad = recall_of(of, model)
        print(f"in {stage} now: {model[:12]}{f'  RECALLED ({bad})' if bad else ''}")
    if why := check_release(of).unusable:
        print(f"the released model cannot be used: {why}")
    return DONE


def _check_ledger(pipeline: "Pipeline") -> int:
    from ml_assets.records.ledger.audit import problems
    from ml_assets.records.ledger.chain import read

    entries = read(pipeline.store, pipeline.name)
    found = problems(entries)
    for problem in found:
        print(problem)
    if found:
        return ERROR
    print(f"{pipeline.name}: {counted(len(entries), 'line')}; one champion at every moment")
    return DONE


def _cells(one: "Happened") -> tuple[str, ...]:
    entry = one.entry
    when = f"{entry.time:%Y-%m-%d %H:%M}"
    why = f"{entry.reason} ({one.gates_moved})" if one.gates_moved else entry.reason
    return when, entry.model[:12], one.what, one.metric, entry.author, why


@click.command
@options.pipeline
@click.option(
    "--at",
    required=True,
    callback=options.moment,
    metavar="TIME",
    help="A time with its zone: 2026-03-01T12:00Z, 2026-03-01T13:00+01:00; or a day: "
    "2026-03-01 (its beginning, UTC).",
)
@options.as_json
def was_serving(pipeline: str, at: datetime, as_json: bool) -> None:
    """Show which model was in production at a given time.

    Reads from the ledger which model was in the stage that the pipeline releases to, and on whose
    authority.
    """
    from ml_assets.actions.model_history import was_serving

    found = was_serving(opened(pipeline), at)
    if as_json:
        document = {
            "at": found.at.isoformat(),
            "model": found.entry.model,
            "stage": found.entry.stage,
            "since": found.entry.model_dump(mode="json"),
            "until": found.until.model_dump(mode="json") if found.until else None,
            "recalled": found.recalled,
        }
        print(json.dumps(document, indent=2))
        return
    print(f"{pipeline}: model {found.entry.model} was in {found.entry.stage}")
    print(f"  since {_said(found.entry)}")
    print(f"  until {_said(found.until)}" if found.until else "  and is there still")
    if found.recalled:
        print(f"  note: it is RECALLED, and is not used ({found.recalled})")


def _said(entry: "LedgerEntry") -> str:
    when = f"{entry.time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f"{when}, line {entry.seq} of {one_line(entry.author)}: {one_line(entry.reason)}"


@click.command
@options.pipeline
@click.option("--gate", required=True, metavar="NAME", help="The gate's name in the spec.")
@click.option("--bound", required=True, type=float, metavar="X", help="The other bound.")
@options.as_json
def what_if(pipeline: str, gate: str, bound: float, as_json: bool) -> None:
    """Show what would have been released under another bound.

    Repeats the decisions of the ledger with the recorded measurements and another bound of one
    gate. If another model would have been champion, comparisons with the recorded champion are used
    as they are, and marked. Nothing is changed.

    \b
      ml-assets release what-if flight_delays --gate floor --bound 0.7
    """
    from ml_assets.records.ledger.chain import read
    from ml_assets.records.ledger.replay import what_if

    of = opened(pipeline)
    found = what_if(read(of.store, of.name), of.spec.release.to, gate, bound)
    if as_json:
        print(json.dumps(_replay_document(found), indent=2))
        return
    for one in found.decisions:
        print(_replayed_line(one))
    changed = sum(one.changed for one in found.decisions)
    would = found.champion[:12] if found.champion else "none"
    now = found.is_champion[:12] if found.is_champion else "none"
    all_of = counted(len(found.decisions), "decision")
    print(f"{changed} of {all_of} would have come out differently")
    print(f"the champion would be {would}; now it is {now}")


def _replayed_line(one: "Replayed") -> str:
    verdict = _word(one.passed)
    mark = f"{verdict} (was {_word(not one.passed)})" if one.changed else verdict
    note = f"  [{one.note}]" if one.note else ""
    then = one.champion[:12] if one.champion else "none"
    when = f"{one.entry.time:%Y-%m-%d %H:%M}"
    said = f"line {one.entry.seq}  {when}  {one.entry.model[:12]}  {mark:21}"
    return f"{said}  champion then: {then}{note}"


def _word(passed: bool) -> str:
    return "passed" if passed else "refused"


def _replay_document(found: "Replay") -> dict[str, object]:
    def row(one: "Replayed") -> dict[str, object]:
        return {
            "seq": one.entry.seq,
            "model": one.entry.model,
            "passed": one.passed,
            "changed": one.changed,
            "champion": one.champion,
            "note": one.note,
        }

    return {
        "decisions": [row(one) for one in found.decisions],
        "champion": found.champion,
        "is_champion": found.is_champion,
    }


@click.command
@options.pipeline
@click.option(
    "--model",
    metavar="DIGEST",
    help="The model: at least the first six characters of its digest.  [default: the one "
    "decided on last]",
)
@options.author
@options.reason
@options.as_json
def override(pipeline: str, model: str | None, author: str, reason: str, as_json: bool) -> None:
    """Allow a release that the gates refused, in your name and for your reason.

    Writes a line into the ledger against the newest decision on a model, if that decision refused
    it. The next `ml-assets run` releases the model. The line names the author and the reason, shows
    in red wherever the release does, and applies to exactly that decision: another decision makes
    it void. Exit code 3: there is no refusal to override.
    """
    from ml_assets.actions.override import override_refusal

    made = override_refusal(
        pipeline, model, author, reason, prepared_settings(), partial(print, file=sys.stderr)
    )
    if as_json:
        print(json.dumps(made.model_dump(mode="json"), indent=2))
        return
    failed = ", ".join(made.gates) or "no gate was evaluated"
    print(
        f"{pipeline}: {made.author} overrides the decision in line {made.overrides} on model"
        f" {made.model[:12]} ({failed}), in line {made.seq}"
    )
    print(f"release it: ml-assets run {pipeline}")


@click.command
@options.pipeline
@click.option(
    "--to",
    metavar="VERSION",
    help="The model: at least the first six characters of its digest.  [default: the previous one]",
)
@options.author
@options.reason
@options.as_json
def rollback(pipeline: str, to: str | None, author: str, reason: str, as_json: bool) -> None:
    """Put back a model that was released before.

    Returns an earlier model to its stage. First its files are checked against its digest and it
    predicts a few rows; then one line of the ledger moves it. The model that it replaces can come
    back only by another rollback. Exit code 1: there is nothing to go back to; 3: the model of --to
    was never released, or somebody else was first.

    \b
      ml-assets release rollback flight_delays --author ada --reason "complaints from Denver"
    """
    started = time.monotonic()
    settings = prepared_settings()

    from ml_assets.actions.rollback import roll_back
    from ml_assets.assets.released_model.rollback import RollbackRequest

    def quiet(_line: str) -> None:
        """A program reads the JSON alone."""

    said = quiet if as_json else tell
    returned = roll_back(pipeline, RollbackRequest(author, reason, to), settings, said)
    entry = returned.entry
    if as_json:
        print(json.dumps(entry.model_dump(mode="json"), indent=2))
        return
    verb = "was in" if returned.was_there else "is back in"
    away = f" in place of {entry.replaced[:12]}" if entry.replaced else ""
    print(
        f"{pipeline}: model {entry.model[:12]} {verb} {entry.stage}{away}"
        f" (ledger line {entry.seq}), in {time.monotonic() - started:.1f} s"
    )


@click.command
@options.pipeline
@click.option(
    "--to",
    type=options.FILE,
    metavar="FOLDER",
    help="The folder to write to.  [default: ./PIPELINE-MODEL]",
)
def export(pipeline: str, to: Path | None) -> None:
    """Write the released model to a folder that proves itself.

    The folder has the weights, configuration and preprocessing, the certificate of the decision
    that released the model, its ledger line, the public key and a model card. `ml-assets release
    verify FOLDER` checks all of it against the certificate, on any machine, without a store.
    """
    from ml_assets.actions.export import export_release
    from ml_assets.records.load_release import doubts

    done = export_release(opened(pipeline), to)
    for said in doubts(done.release):
        print(f"note: {said}", file=sys.stderr)
    print(done.folder if done.new else f"{done.folder} (already there, and complete)")


@click.command
@click.argument("subject", metavar="[PIPELINE|FOLDER]", required=False)
@click.option(
    "--key",
    metavar="PUBLIC",
    help="For a folder: the trusted public key in base64, or a file with it.",
)
@click.option(
    "--head",
    metavar="SEQ:SHA256",
    help="For a pipeline: a head of the ledger that you noted before.",
)
@options.as_json
def verify(subject: str | None, key: str | None, head: str | None, as_json: bool) -> int:
    """Check releases against their certificates; works offline.

    \b
      PIPELINE  its ledger, every certificate, and the model in each of its stages
      FOLDER    the output of `ml-assets release export`; no store is needed
      (none)    every pipeline that has a ledger

    A signature counts if its key is trusted: --key, ML_ASSETS_TRUSTED_KEYS, or the key of
    ML_ASSETS_SIGNING_KEY. Without any of these, only digests and the chain are verified, not the
    author. Exit code 0: every check passes; 3: something was refused, with its reason.
    """
    from ml_assets.actions.verify import verify_folder, verify_pipelines
    from ml_assets.spec.load import pipeline_folders

    settings = read_settings()
    if subject is not None and not subject.strip():
        raise click.UsageError("The pipeline or folder is empty. Leave it out to verify all.")
    if subject is None or subject in pipeline_folders(settings):
        found = verify_pipelines(settings, subject, head)
    else:
        found = [verify_folder(Path(subject), key)]
    if as_json:
        print(json.dumps(_verified_document(found), indent=2))
    for one in [] if as_json else found:
        print(f"{one.subject}: {'verified' if one.holds else 'REFUSED'}")
        for check in one.checks:
            print(f"  {check.outcome:<8} {check.name}: {check.reason}")
    return DONE if all(one.holds for one in found) else REFUSED


def _verified_document(found: "list[Verification]") -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "verified": all(one.holds for one in found),
        "subjects": [
            {
                "subject": one.subject,
                "verified": one.holds,
                "checks": [vars(check) for check in one.checks],
            }
            for one in found
        ],
    }


release = CommandGroup("release", help="Inspect, move, verify and export releases.")
release.subject("The ledger", history, was_serving, what_if)
release.subject(
    "Move a model",
    of_extra("release promote", "Judge the model in canary, and promote it if it passes."),
    rollback,
    override,
)
release.subject(
    "Check and hand over",
    verify,
    of_extra("release prove", "Rebuild a model from its record, and compare the two."),
    export,
    render,
)
