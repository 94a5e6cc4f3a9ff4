"""What must hold whatever broke on the way: each is a function from a history to sentences.

Nothing here imports the product.
"""

import hashlib
import json
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import groupby

from ml_assets_tests.faults.history import History, Json


def whole(history: History) -> Iterator[str]:
    """Every file that a state names is there with its bytes; every record has its files."""
    checked: set[str] = set()
    for commit in history.commits:
        for path, digest in commit.tree.items():
            if digest in checked:
                continue
            checked.add(digest)
            content = history.read(digest)
            if content is None:
                yield f"{path} of {commit.id[:12]} is not in the store"
            elif hashlib.sha256(content).hexdigest() != digest:
                yield f"{path} of {commit.id[:12]} has other bytes than its name says"
    for path in history.below("records/"):
        table = path.replace("records/", "tables/", 1).removesuffix(".json") + "/"
        rows = history.file(path).get("rows")
        if rows is not None and not history.below(table):
            yield f"{path} speaks of {rows} rows, and {table} has no file"


def published_once(history: History) -> Iterator[str]:
    """No piece of work is in ``main`` twice."""
    seen: dict[tuple[str, str], str] = {}
    for commit in history.commits:
        work = commit.message, commit.run_key
        if commit.run_key and work in seen:
            yield f"{commit.message!r} is published by {seen[work][:12]} and {commit.id[:12]}"
        seen[work] = commit.id


def rows_once(history: History) -> Iterator[str]:
    """A training leaves no step out, and a step that is taken again has the same rows.

    By the training's own count, each whole epoch has each row once. Which rows a step took shows in
    the loss of its weights on the validation split; on another number of processes sums are rounded
    otherwise. (What is told of the training rows is a mean since the attempt began.)
    """
    for session, events in history.trained.items():
        at, every, losses = 0, 0, dict[int, float]()
        epochs = [event for event in events if event["kind"] == "epoch"]
        yield from _counted(session, epochs)
        if session in history.ended:
            told = {event["epoch"] for event in epochs}
            asked = _planned(events, history.epochs.get(session, 0))
            yield from _left_out(session, told | _unsent(events, asked), asked)
        for event in events:
            step, resumed = event.get("step", 0), _RESUMED.match(event.get("message", ""))
            if event["kind"] == "first_rows" or resumed:
                at = int(resumed[1]) if resumed else 0
            if event["kind"] != "metrics" or "validation_loss" not in event["metrics"]:
                continue
            every = every or step
            if step > at + every:
                yield f"{session}: no step between {at} and {step} was judged"
            at, loss = step, event["metrics"]["validation_loss"]
            if abs(losses.setdefault(step, loss) - loss) > 1e-3 * abs(loss):
                yield f"{session}: step {step} had a loss of {losses[step]}, and again of {loss}"


def _counted(session: str, epochs: Sequence[Json]) -> Iterator[str]:
    """Rows are numbered from 0; their numbers, and the squares, are added up modulo 2**40."""
    for event in epochs:
        n, told = event["drawn"]["rows"], event["drawn"]
        once = n * (n - 1) // 2 % 2**40, n * (n - 1) * (2 * n - 1) // 6 % 2**40
        if (told["numbers"], told["squares"]) != once:
            yield f"{session}: epoch {event['epoch']} did not have each of its {n} rows once"
    if len({event["drawn"]["rows"] for event in epochs}) > 1:
        yield f"{session}: its epochs had different numbers of rows"


def _planned(events: Sequence[Json], asked: int) -> int:
    """The epochs that a training went through by its own last word; one may stop early."""
    last = next((event["result"] for event in reversed(events) if event["kind"] == "result"), {})
    return asked if last.get("stopped") == "epochs" else 0


def _left_out(session: str, ended: Set[int], planned: int) -> Iterator[str]:
    for number in sorted({*range(1, max(planned, *ended, 0) + 1)} - ended):
        yield f"{session}: epoch {number} was left out"


def _unsent(events: Sequence[Json], planned: int) -> Set[int]:
    """The epochs whose reports died with a pod: its attempt has no last word, and they lie between
    its last report and the first of the next attempt, which began with a checkpoint of theirs. The
    last checkpoint of all leaves it only the result to tell."""
    found, last, cut_off = set[int](), 0, False
    for _, attempt in groupby(events, key=lambda event: event["attempt"]):
        said = [*attempt]
        epochs = [event["epoch"] for event in said if event["kind"] == "epoch"]
        done = said[-1]["kind"] == "result"
        if cut_off and (epochs or done):
            found |= {*range(last + 1, epochs[0] if epochs else planned + 1)}
        last = epochs[-1] if epochs else last
        cut_off = said[-1]["kind"] not in ("error", "result") or (cut_off and not epochs)
    return found


_RESUMED = re.compile(r"resumed at step (\d+) ")


def chained(history: History) -> Iterator[str]:
    """Each ledger is one chain of lines that nobody changed, from the first state to the newest."""
    for pipeline in history.ledgers:
        before = None
        for number, path in enumerate(history.below(f"ledger/{pipeline}/"), start=1):
            line = history.file(path)
            if line["seq"] != number:
                yield f"{path} is line {line['seq']} and lies at place {number}"
            if line["previous"] != before:
                yield f"{path} does not follow the line before it"
            before = history.newest[path]
    lines: dict[str, str] = {}
    for commit in history.commits:
        for path, digest in lines.items():
            if commit.tree.get(path) != digest:
                yield f"{commit.id[:12]} changes or drops {path}"
        lines = {path: at for path, at in commit.tree.items() if path.startswith("ledger/")}


def one_champion(history: History) -> Iterator[str]:
    """Whoever moves into a stage takes the place of whoever was there."""
    for pipeline, lines in history.ledgers.items():
        there: dict[str, str] = {}
        for line in lines:
            stage = line.get("stage")
            if line["kind"] == "abort":
                there.pop("canary", None)
            if line["kind"] != "stage" or stage is None:
                continue
            if line["replaced"] != there.get(stage):
                yield f"{pipeline}, line {line['seq']}: it replaces a model that was not in {stage}"
            there = {at: model for at, model in there.items() if model != line["model"]}
            there[stage] = line["model"]


def refused_stays_out(history: History) -> Iterator[str]:
    """A stage holds what passed every gate, what a person answered for, or what was there once."""
    for pipeline, lines in history.ledgers.items():
        by_number = {line["seq"]: line for line in lines}
        been: set[tuple[str, str]] = set()
        for line in lines:
            if line["kind"] != "stage" or line.get("stage") is None:
                continue
            at = f"{pipeline}, line {line['seq']}"
            move = line["model"], line["stage"]
            if line.get("because") == "rollback":
                if move not in been:
                    yield f"{at}: it goes back to a model that never was in {line['stage']}"
                continue
            been.add(move)
            by = by_number.get(line.get("decided_by") or 0)
            if by is None or by["seq"] >= line["seq"] or by["model"] != line["model"]:
                yield f"{at}: no decision on its model stands before it"
            elif by["kind"] == "override":
                continue
            elif by["kind"] != "decision" or not by["decision"]["gates"]:
                yield f"{at}: line {by['seq']}, which it rests on, decides nothing"
            elif failed := [g["name"] for g in by["decision"]["gates"] if not g["passed"]]:
                yield f"{at}: a model is in {line['stage']} that failed {', '.join(failed)}"


def recalled_stays_out(history: History) -> Iterator[str]:
    """No model moves into a stage while a recall holds that reached it.

    Nothing here makes recalled content again from sound inputs, which would be allowed.
    """
    before: Mapping[str, str] = {}
    for commit in history.commits:
        bad = {model for path in before for model in _reached(history, before, path)}
        for path in commit.tree.keys() - before.keys():
            if bad and path.startswith("ledger/"):
                line = json.loads(history.read(commit.tree[path]) or b"{}")
                if line.get("kind") == "stage" and line.get("stage") and line["model"] in bad:
                    yield f"{path}: a model moves into {line['stage']} that is recalled"
        before = commit.tree


def _reached(history: History, tree: Mapping[str, str], path: str) -> list[str]:
    """The models that a recall took back, if this file is one that still holds."""
    folder, _, name = path.partition("/")
    lifted = f"recalls/{name.removesuffix('.json')}.lifted.json" in tree
    if folder != "recalls" or lifted or name.count(".") > 1 or name == "active.json":
        return []
    recall = json.loads(history.read(tree[path]) or b"{}")
    reached = [*recall.get("seeds", ()), *recall.get("reached", ())]
    return [one["version"] for one in reached if one["key"].split("/")[1] == "trained_model"]


def certified(history: History) -> Iterator[str]:
    """Beside each decision lies its certificate; each model in a stage lies whole in the store."""
    for pipeline, lines in history.ledgers.items():
        for line in lines:
            name = f"certificates/{pipeline}/{line['seq']:06}.json"
            if line["kind"] == "decision" and name not in history.newest:
                yield f"{pipeline}, line {line['seq']}: the decision has no certificate"
            if line["kind"] == "stage":
                yield from _model(history, line["model"], f"{pipeline}, line {line['seq']}")


def _model(history: History, digest: str, at: str) -> Iterator[str]:
    manifest = history.model(digest, "model.json")
    if manifest is None:
        yield f"{at}: model {digest[:12]} is not in the object store"
        return
    wanted = json.loads(manifest)["weights"]
    weights = history.model(digest, wanted.get("file", "weights.safetensors"))
    if weights is None or hashlib.sha256(weights).hexdigest() != wanted["sha256"]:
        yield f"{at}: the weights of model {digest[:12]} are not those that its manifest names"


def tracked_once(history: History) -> Iterator[str]:
    """MLflow has one run for each training that made a model, and says that it ended."""
    for path in history.below("records/"):
        session = history.file(path)["attributes"].get("session")
        if path.split("/")[2] != "trained_model" or session is None:
            continue
        statuses = history.tracked.get(session, ())
        if statuses != ("FINISHED",):
            said = ", ".join(statuses) or "nothing"
            yield f"MLflow has of session {session}: {said}, where one FINISHED run is due"


def nothing_left(history: History) -> Iterator[str]:
    """No process, no draft, no half state and no run that is under way for ever."""
    yield from (f"a process still works: {command[:160]}" for command in history.processes)
    yield from history.remote
    yield from (f"{path} was left behind" for path in history.leftovers)
    for name, kind in history.refs.items():
        if kind == "branch" and name != "main":
            yield f"the branch {name} was left behind"
    for run, status in history.runs.items():
        if status not in ("SUCCESS", "FAILURE", "CANCELED"):
            yield f"Dagster's run {run[:8]} is still {status}"


def told(history: History) -> Iterator[str]:
    """Every command and each failed step ends in sentences for people, never in a stack of ours."""
    for number, said in enumerate(history.said, start=1):
        if not said.strip():
            yield f"command {number} said nothing"
        _, stack, frames = said.partition("Traceback (most recent call last)")
        if stack and "ml_assets" in frames:  # before that the interpreter itself begins
            yield f"command {number} ended in a stack: {said.strip().splitlines()[-1][:160]}"
    for one in history.failures:
        if one.ours and not one.told and one.error not in _OF_DAGSTER:
            yield f"step {one.step} failed with a bare {one.error}"


_OF_DAGSTER = {"DagsterExecutionInterruptedError", "DagsterAssetCheckFailedError"}
"""Errors by which Dagster itself ends a step: somebody ended the run, or a gate has refused."""


INVARIANTS: dict[str, Callable[[History], Iterator[str]]] = {
    "no state is half visible": whole,
    "nothing is published twice": published_once,
    "every row is learned from once an epoch": rows_once,
    "the ledger is a single chain": chained,
    "one champion at a time": one_champion,
    "a refused model is in no stage": refused_stays_out,
    "a recalled model moves into no stage": recalled_stays_out,
    "what is in a stage is certified and whole": certified,
    "MLflow tells each training once": tracked_once,
    "nothing runs or lies about afterwards": nothing_left,
    "people are told in sentences": told,
}
AT_ANY_MOMENT = frozenset(INVARIANTS) - {
    "MLflow tells each training once",
    "nothing runs or lies about afterwards",
}
"""These hold in the midst of the work too, whenever somebody looks."""


def violations(history: History, *, midway: bool = False) -> list[tuple[str, str]]:
    """Invariant -> what breaks it; midway only what holds at any moment is asked."""
    asked = AT_ANY_MOMENT if midway else INVARIANTS
    return [
        (name, found) for name in INVARIANTS if name in asked for found in INVARIANTS[name](history)
    ]


MEASURED = {"latency", "throughput", "memory"}
"""Gates whose values are those of the machine, at that moment."""


def result(history: History) -> Json:
    """What is the same however it was reached: versions of the data, the gates, the weights.

    Raises:
        LookupError: nothing was decided.
    """
    apart = ("evaluation_report", "released_model", "checkpoints")  # they name times and runs
    versions = {
        path: history.file(path)["data_version"]
        for path in history.below("records/")
        if path.split("/")[2] not in apart
    }
    gates = {
        pipeline: {
            gate["name"]: (gate["value"], gate["passed"])
            for gate in [line["decision"] for line in lines if line["decision"]][-1]["gates"]
            if gate["name"] not in MEASURED
        }
        for pipeline, lines in history.ledgers.items()
    }
    decided = {
        pipeline: [line["model"] for line in lines if line["decision"]][-1]
        for pipeline, lines in history.ledgers.items()
    }
    weights = {pipeline: _weights(history, digest) for pipeline, digest in decided.items()}
    return {"versions": versions, "gates": gates, "weights": weights}


def _weights(history: History, digest: str) -> list[float]:
    """All numbers of a model's file: safetensors, the length of a head, the head, 32-bit floats."""
    content = history.model(digest, "weights.safetensors") or b""
    if len(content) < 8:
        return []
    (head,) = struct.unpack_from("<Q", content)
    numbers = content[8 + head :]
    return [*struct.unpack(f"<{len(numbers) // 4}f", numbers[: len(numbers) // 4 * 4])]


def same_result(history: History, undisturbed: Json) -> bool:
    """Whether the result is the one of an undisturbed run: bit for bit, or to 1e-5 where a training
    was on another number of processes for a while, since its sums are rounded otherwise then.

    Raises:
        LookupError: nothing was decided.
    """
    found = result(history)
    if found == undisturbed or len(frozenset().union(*history.worlds.values())) < 2:
        return found == undisturbed
    return _exact(found) == _exact(undisturbed) and all(
        math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-5)
        for one, other in zip(_rounded(found), _rounded(undisturbed), strict=True)
    )


def _exact(found: Json) -> Json:
    """What no rounding changes."""
    versions = {p: v for p, v in found["versions"].items() if p.split("/")[2] != "trained_model"}
    passed = {
        pipeline: {name: ok for name, (_, ok) in gates.items()}
        for pipeline, gates in found["gates"].items()
    }
    lengths = {pipeline: len(numbers) for pipeline, numbers in found["weights"].items()}
    return {"versions": versions, "passed": passed, "lengths": lengths}


def _rounded(found: Json) -> list[float]:
    values = [value for gates in found["gates"].values() for value, _ in gates.values()]
    return [
        *(float(value) for value in values if value is not None),
        *(number for numbers in found["weights"].values() for number in numbers),
    ]
