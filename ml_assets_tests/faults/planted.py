"""Histories with a planted violation: each plant breaks one invariant of a sound history."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from ml_assets_tests.faults.history import Commit, Failure, History

Plant = Callable[[History], History]


def rewritten(history: History, **changes: object) -> History:
    """The newest state with other content at some paths; None takes a path away."""
    first = len(history.commits[-1].tree)  # no digest twice, where a plant is planted on another
    contents = {f"{first + n:064x}": value for n, value in enumerate(changes.values())}
    tree = dict(history.commits[-1].tree)
    for path, (digest, value) in zip(changes, contents.items(), strict=True):
        tree[path] = digest
        if value is None:
            del tree[path]

    def read(digest: str) -> bytes | None:
        value = contents.get(digest)
        return json.dumps(value).encode() if value is not None else history.read(digest)

    newest = replace(history.commits[-1], tree=tree)
    return replace(history, commits=(*history.commits[:-1], newest), read=read)


def line(history: History, of: Callable[[Mapping], bool]) -> tuple[str, dict]:
    """The path and content of the newest line of the irises' ledger that fits."""
    found = [(path, history.file(path)) for path in history.below("ledger/irises/")]
    return [(path, content) for path, content in found if of(content)][-1]


def without_a_file(history: History) -> History:
    gone = history.newest[history.below("tables/")[0]]
    return replace(history, read=lambda digest: None if digest == gone else history.read(digest))


def with_a_flipped_byte(history: History) -> History:
    at = history.newest[history.below("tables/")[0]]

    def read(digest: str) -> bytes | None:
        content = history.read(digest)
        return b"!" + content[1:] if content and digest == at else content

    return replace(history, read=read)


def with_a_record_without_its_table(history: History) -> History:
    tables = history.below("tables/irises/feature_set/")
    return rewritten(history, **dict.fromkeys(tables))


def published_again(history: History) -> History:
    done = next(commit for commit in history.commits if commit.run_key)
    return replace(
        history,
        commits=(*history.commits, replace(history.commits[-1], **_work(done), id="f" * 64)),
    )


def _work(commit: Commit) -> dict[str, str]:
    return {"message": commit.message, "run_key": commit.run_key}


def trained(history: History, change: Callable[[list[dict]], None]) -> History:
    """The newest of its trainings, with what it reported of itself changed."""
    session = sorted(history.trained)[-1]
    events = [{**event} for event in history.trained[session]]
    change(events)
    return replace(history, trained={**history.trained, session: tuple(events)})


def judged(events: list[dict]) -> list[dict]:
    return [e for e in events if e["kind"] == "metrics" and "validation_loss" in e["metrics"]]


def with_a_step_left_out(history: History) -> History:
    return trained(history, lambda events: events.remove(judged(events)[1]))


def resumed(events: list[dict], step: int, loss: float) -> None:
    """A process died, and the training went on from its first judged step to its second."""
    first, second = judged(events)[:2]
    message = f"resumed at step {step} of {second['step']}"
    metrics = {**second["metrics"], "validation_loss": loss}
    events += [{**first, "kind": "progress", "message": message}, {**second, "metrics": metrics}]


def resumed_with_other_rows(history: History) -> History:
    def change(events: list[dict]) -> None:
        first, second = judged(events)[:2]
        resumed(events, first["step"], second["metrics"]["validation_loss"] * 1.01)

    return trained(history, change)


def resumed_at_a_later_step(history: History) -> History:
    def change(events: list[dict]) -> None:
        del events[events.index(judged(events)[1]) :]  # it had come to the first one
        first = judged(events)[0]
        again = {**first, "kind": "progress", "message": f"resumed at step {first['step']} of 9"}
        events += [again, {**first, "step": 3 * first["step"]}]

    return trained(history, change)


def with_a_row_twice(history: History) -> History:
    def change(events: list[dict]) -> None:
        ended = [event for event in events if event["kind"] == "epoch"]
        ended[-1]["drawn"] = ended[-1]["drawn"] | {"numbers": ended[-1]["drawn"]["numbers"] + 1}

    return trained(history, change)


def with_an_epoch_left_out(history: History) -> History:
    return trained(
        history, lambda events: events.remove(next(e for e in events if e["kind"] == "epoch"))
    )


def without_its_last_epoch(history: History) -> History:
    def change(events: list[dict]) -> None:
        events.remove([event for event in events if event["kind"] == "epoch"][-1])

    return trained(history, change)


def without_epochs(history: History) -> History:
    def change(events: list[dict]) -> None:
        events[:] = [event for event in events if event["kind"] != "epoch"]

    return trained(history, change)


def with_an_edited_line(history: History) -> History:
    path, content = line(history, lambda content: content["kind"] == "registration")
    return rewritten(history, **{path: content | {"reason": "it was like this"}})


def with_a_line_taken_out(history: History) -> History:
    path, _ = line(history, lambda content: content["kind"] == "registration")
    return rewritten(history, **{path: None})


def with_a_second_champion(history: History) -> History:
    path, content = line(history, lambda content: content["kind"] == "stage")
    return rewritten(history, **{path: content | {"replaced": "a" * 64}})


def with_a_refused_model_in_production(history: History) -> History:
    _, refused = line(history, lambda content: not (content["decision"] or {"passed": 1})["passed"])
    path, content = line(history, lambda content: content["kind"] == "stage")
    moved = {"model": refused["model"], "decided_by": refused["seq"], "seq": refused["seq"] + 1}
    last = history.below("ledger/irises/")[-1]
    return rewritten(history, **{path.replace(path, last + "~"): content | moved})


def moved_without_a_decision(history: History) -> History:
    path, content = line(history, lambda content: content["kind"] == "stage")
    return rewritten(history, **{path: content | {"decided_by": None}})


def with_a_recalled_model_in_production(history: History) -> History:
    path, content = line(history, lambda content: content["kind"] == "stage")
    reached = [{"key": "irises/trained_model", "version": content["model"]}]
    recalled = rewritten(history, **{"recalls/0123456789ab.json": {"reached": reached}})
    last = history.below("ledger/irises/")[-1]
    again = rewritten(recalled, **{path.replace(path, last + "~"): content})
    return replace(again, commits=(*recalled.commits, again.commits[-1]))


def without_a_certificate(history: History) -> History:
    return rewritten(history, **{history.below("certificates/")[0]: None})


def with_other_weights(history: History) -> History:
    def model(digest: str, name: str) -> bytes | None:
        return b"others" if name != "model.json" else history.model(digest, name)

    return replace(history, model=model)


def tracked_twice(history: History) -> History:
    return replace(history, tracked={name: ("FINISHED",) * 2 for name in history.tracked})


def never_ended(history: History) -> History:
    return replace(history, tracked=dict.fromkeys(history.tracked, ("RUNNING",)))


def with_a_process(history: History) -> History:
    return replace(history, processes=("python -m ml_assets.training",))


def with_a_pod(history: History) -> History:
    return replace(history, remote=("the pod irises-train-1 was left behind",))


def with_a_run_under_way(history: History) -> History:
    return replace(history, runs={**history.runs, "0" * 36: "STARTED"})


def with_a_draft(history: History) -> History:
    return replace(history, leftovers=("snapshots/drafts/7",))


def with_a_branch(history: History) -> History:
    return replace(history, refs={**history.refs, "work-7": "branch"})


STACK = """\
Traceback (most recent call last):
  File "ml_assets/cli/main.py", line 1, in main
KeyError: 'x'
"""


def in_a_stack(history: History) -> History:
    return replace(history, said=(STACK,))


def in_a_bare_error(history: History) -> History:
    return replace(history, failures=(Failure("irises__train", "KeyError", ""),))


def in_silence(history: History) -> History:
    return replace(history, said=("",))


PLANTED: dict[Plant, str] = {
    without_a_file: "no state is half visible",
    with_a_flipped_byte: "no state is half visible",
    with_a_record_without_its_table: "no state is half visible",
    published_again: "nothing is published twice",
    with_a_step_left_out: "every row is learned from once an epoch",
    with_a_row_twice: "every row is learned from once an epoch",
    with_an_epoch_left_out: "every row is learned from once an epoch",
    without_its_last_epoch: "every row is learned from once an epoch",
    without_epochs: "every row is learned from once an epoch",
    resumed_with_other_rows: "every row is learned from once an epoch",
    resumed_at_a_later_step: "every row is learned from once an epoch",
    with_an_edited_line: "the ledger is a single chain",
    with_a_line_taken_out: "the ledger is a single chain",
    with_a_second_champion: "one champion at a time",
    with_a_refused_model_in_production: "a refused model is in no stage",
    moved_without_a_decision: "a refused model is in no stage",
    with_a_recalled_model_in_production: "a recalled model moves into no stage",
    without_a_certificate: "what is in a stage is certified and whole",
    with_other_weights: "what is in a stage is certified and whole",
    tracked_twice: "MLflow tells each training once",
    never_ended: "MLflow tells each training once",
    with_a_process: "nothing runs or lies about afterwards",
    with_a_pod: "nothing runs or lies about afterwards",
    with_a_run_under_way: "nothing runs or lies about afterwards",
    with_a_draft: "nothing runs or lies about afterwards",
    with_a_branch: "nothing runs or lies about afterwards",
    in_a_stack: "people are told in sentences",
    in_a_bare_error: "people are told in sentences",
    in_silence: "people are told in sentences",
}
