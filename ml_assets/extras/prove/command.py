"""ml-assets release prove: make a run or a model again, and say whether it is the same."""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ml_assets.cli import options
from ml_assets.cli.output import DONE, ERROR, REFUSED
from ml_assets.errors import counted

if TYPE_CHECKING:
    from ml_assets.extras.prove.proof import Proof
    from ml_assets.extras.prove.reproduction import Reproduction

SCHEMA = 1
_MARKS = {"equal": "equal", "tolerated": "equal~", "differs": "DIFFERS", "not compared": "-"}
_EXITS = {"differs": REFUSED, "not compared": ERROR}


@click.command
@click.argument("what", metavar="PIPELINE|RUN|MODEL")
@click.argument("which", metavar="[RUN|MODEL]", required=False)
@click.option(
    "--despite-code",
    is_flag=True,
    help="Continue even if code, lock, functions or contracts have changed.",
)
@click.option(
    "--from-snapshots",
    is_flag=True,
    help="Begin with the stored snapshots instead of reading the sources again.",
)
@click.option(
    "--keep",
    type=options.FILE,
    metavar="FOLDER",
    help="An empty folder for the clean home, which is then kept.",
)
@click.option(
    "--study",
    is_flag=True,
    help="Make one trial of the newest search again: the best, or the one with the given number.",
)
@options.verbose
@options.as_json
def prove(
    what: str,
    which: str | None,
    despite_code: bool,
    from_snapshots: bool,
    keep: Path | None,
    study: bool,
    verbose: bool,
    as_json: bool,
) -> int:
    """Rebuild a model from its record, and compare the two.

    Makes a run or a model again in a clean home from its run record: sources, tables, features,
    training set, weights, report, decision. Prints a verdict for each: equal (the same bytes),
    equal~ (another kind of device: every metric within 0.5 %, not bits), or the first that differs.
    Exit code 0: equal; 3: it differs, or the present code is not the code that made it; 1: it
    cannot be proved, as where it was interrupted then. The state folder is only read.

    Name a pipeline (for its release); or the beginning of a run's id, of a session's name or of a
    model's digest, six characters or more; or latest.

    \b
      ml-assets release prove flight_delays
      ml-assets release prove flight_delays latest
      ml-assets release prove flight_delays --study 7
    """
    if study:
        return _prove_trial(what, which, as_json=as_json)
    from ml_assets.cli.run import Lines
    from ml_assets.errors import OtherCode
    from ml_assets.extras.prove.proof import Proof, ProofRequest
    from ml_assets.settings import read_settings

    asked = ProofRequest(
        what, which, despite_code=despite_code, from_snapshots=from_snapshots, keep=keep
    )
    started = time.monotonic()
    proof = Proof(read_settings(), asked, _tell if verbose else Lines(_tell).tell)
    try:
        found = list(_told(proof, quiet=as_json))
    except OtherCode as refusal:
        if not as_json:
            raise
        print(json.dumps({**_document(proof, [], None, 0.0), "verdict": "refused"}, indent=2))
        print(f"error: {refusal}", file=sys.stderr)
        return REFUSED
    seconds = time.monotonic() - started
    first = next((v for v in found if v.outcome == "differs"), None)
    if as_json:
        print(json.dumps(_document(proof, found, first, seconds), indent=2))
    else:
        print(_summary(proof, found, first, seconds))
    return _EXITS.get(_verdict(found), DONE)


def _prove_trial(pipeline: str, number: str | None, *, as_json: bool) -> int:
    from ml_assets.cli.session import opened
    from ml_assets.extras.prove.remake_trial import trial_verdict

    if number is not None and not number.isdigit():
        raise click.UsageError(f"{number!r} is not the number of a trial.")
    found = trial_verdict(opened(pipeline), None if number is None else int(number))
    print(json.dumps({"schema": SCHEMA, **asdict(found)}, indent=2) if as_json else _line(found))
    return REFUSED if found.outcome == "differs" else DONE


def _told(proof: "Proof", *, quiet: bool) -> "list[Reproduction]":
    if not quiet:
        print(f"{proof.claim.said} of {proof.claim.pipeline}, made again in a clean home")
        for note in proof.notes:
            print(f"  note: {note}")
    found: list[Reproduction] = []
    for verdict in proof.verdicts():
        found.append(verdict)
        if not quiet:
            print(_line(verdict), flush=True)
    return found


def _line(verdict: "Reproduction") -> str:
    parts = f" ({counted(verdict.partitions, 'partition')})" if verdict.partitions > 1 else ""
    said = f": {verdict.said}" if verdict.said else ""
    digests = ""
    if verdict.then and verdict.now:
        digests = f" ({verdict.now[:12]}, {verdict.then[:12]} then)"
    return f"{_MARKS[verdict.outcome]:8} {verdict.asset}{parts}{said}{digests}"


def _summary(
    proof: "Proof", found: "list[Reproduction]", first: "Reproduction | None", seconds: float
) -> str:
    what = f"{proof.claim.said} of {proof.claim.pipeline}"
    took = f"{seconds:.0f} s"
    if first:
        return f"{what} differs, first in {first.asset}; what follows is made from it. {took}"
    loose = [v.asset for v in found if v.outcome == "tolerated"]
    if loose:
        return f"{what} is equal to 0.5 %, not in bits: {', '.join(loose)}. {took}"
    if any(v.outcome == "not compared" for v in found):
        return f"{what} is equal as far as it went. {took}"
    return f"{what} is equal, byte by byte. {took}"


def _verdict(found: "list[Reproduction]") -> str:
    """Of all together: the worst one."""
    outcomes = {one.outcome for one in found}
    worst = ("differs", "not compared", "tolerated")
    return next((one for one in worst if one in outcomes), "equal")


def _document(
    proof: "Proof", found: "list[Reproduction]", first: "Reproduction | None", seconds: float
) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "pipeline": proof.claim.pipeline,
        "what": proof.claim.said,
        "verdict": _verdict(found),
        "first_difference": asdict(first) if first else None,
        "verdicts": [asdict(one) for one in found],
        "code_differences": proof.differences(),
        "notes": proof.notes,
        "seconds": round(seconds, 1),
    }


def _tell(line: str) -> None:
    """Progress goes beside the verdicts."""
    print(f"  {line}", file=sys.stderr, flush=True)
