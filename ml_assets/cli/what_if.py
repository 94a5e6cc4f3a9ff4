"""ml-assets what-if: the recorded decisions again, with another bound of a gate."""

import argparse
import json
from typing import TYPE_CHECKING

from ml_assets.cli.exit_codes import DONE
from ml_assets.settings import read_settings

if TYPE_CHECKING:
    from ml_assets.records.ledger.replay import Replay, Replayed


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "what-if",
        help="which models would have been released, had a gate another bound",
        description="Repeats the decisions of the ledger with the values that were measured and"
        " another bound of one gate. Where another model would have been champion, a comparison"
        " with the one that was is taken as it was, and marked. Nothing is changed.",
    )
    parser.add_argument("pipeline")
    parser.add_argument("--gate", required=True, metavar="NAME", help="as the spec names it")
    parser.add_argument("--bound", required=True, type=float, metavar="X", help="to hold it to")
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    from ml_assets.records.ledger.chain import read
    from ml_assets.records.ledger.replay import what_if
    from ml_assets.store.pipeline_context import open_pipeline

    pipeline = open_pipeline(arguments.pipeline, read_settings())
    entries = read(pipeline.store, pipeline.name)
    found = what_if(entries, pipeline.spec.release.to, arguments.gate, arguments.bound)
    if arguments.json:
        print(json.dumps(_document(found), indent=2))
        return DONE
    for one in found.decisions:
        verdict = _word(one.passed)
        mark = f"{verdict} (was {_word(not one.passed)})" if one.changed else verdict
        note = f"  [{one.note}]" if one.note else ""
        then = one.champion[:12] if one.champion else "none"
        when = f"{one.entry.time:%Y-%m-%d %H:%M}"
        said = f"line {one.entry.seq}  {when}  {one.entry.model[:12]}  {mark:21}"
        print(f"{said}  champion then: {then}{note}")
    changed = sum(one.changed for one in found.decisions)
    would = found.champion[:12] if found.champion else "none"
    now = found.is_champion[:12] if found.is_champion else "none"
    print(f"{changed} of {len(found.decisions)} decisions would have been others")
    print(f"the champion would be {would}; it is {now}")
    return DONE


def _word(passed: bool) -> str:
    return "passed" if passed else "refused"


def _document(found: "Replay") -> dict[str, object]:
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
