"""The checker finds nothing in a sound history, and each planted violation in one that is not."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ml_assets_tests.faults import invariants as checker
from ml_assets_tests.faults.history import Commit, Failure, History, failures_of, read_home
from ml_assets_tests.faults.invariants import INVARIANTS, result, same_result, violations
from ml_assets_tests.fresh import said_by
from ml_assets_tests.worlds.world import World

Plant = Callable[[History], History]


@pytest.fixture(scope="module")
def sound(released: World) -> History:
    """Of two pipelines, with two releases and a refused model."""
    return read_home(released.root / "state", said=("decision: passed",))


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


def test_a_sound_history_breaks_nothing(sound: History) -> None:
    assert violations(sound) == []
    assert len(sound.ledgers) == 2 and len(sound.commits) > 20


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_violation_is_found(sound: History, plant: Plant) -> None:
    broken = {invariant for invariant, _ in violations(plant(sound))}
    assert PLANTED[plant] in broken


def test_each_invariant_has_a_planted_violation() -> None:
    assert {*PLANTED.values()} == {*INVARIANTS}


def test_a_training_that_is_resumed_as_it_should_be_breaks_nothing(sound: History) -> None:
    def change(events: list[dict]) -> None:
        first, second = judged(events)[:2]
        resumed(events, first["step"], second["metrics"]["validation_loss"])

    assert violations(trained(sound, change)) == []


@pytest.mark.parametrize("last_word", [None, "error"])
def test_reports_may_die_with_an_attempt_that_had_no_last_word(
    sound: History, last_word: str | None
) -> None:
    def change(events: list[dict]) -> None:
        second, third = [event for event in events if event["kind"] == "epoch"][1:3]
        cut = events.index(second)
        last = {**second, "kind": last_word or "progress", "message": "saved"}
        later = [event | {"attempt": 2} for event in events[events.index(third) :]]
        events[cut:] = [last, *later]

    broken = {invariant for invariant, _ in violations(trained(sound, change))}
    assert broken == ({"every row is learned from once an epoch"} if last_word else set())


def test_the_last_epochs_report_may_die_with_a_pod_whose_checkpoint_ends_the_training(
    sound: History,
) -> None:
    def change(events: list[dict]) -> None:
        last = [event for event in events if event["kind"] == "epoch"][-1]
        result = events[-1] | {"attempt": 2}
        events[events.index(last) :] = [last | {"kind": "progress", "message": "saved"}, result]

    assert sound.trained and all(asked > 1 for asked in sound.epochs.values())
    assert violations(trained(sound, change)) == []


def other_record(history: History, stage: str) -> History:
    path = history.below(f"records/irises/{stage}/")[0]
    return rewritten(history, **{path: history.file(path) | {"data_version": "a" * 64}})


def other_gate(history: History) -> History:
    path, content = line(history, lambda content: content["decision"])
    gates = content["decision"]["gates"]
    changed = [{**gates[0], "value": gates[0]["value"] + 1e-9}, *gates[1:]]
    return rewritten(history, **{path: {**content, "decision": {"gates": changed}}})


@pytest.mark.parametrize(
    "plant",
    [
        lambda history: other_record(history, "trained_model"),
        lambda history: other_record(history, "feature_set"),
        other_gate,
    ],
    ids=["other weights", "other features", "a gate by another value"],
)
def test_a_result_that_is_not_the_undisturbed_one_differs(sound: History, plant: Plant) -> None:
    assert result(sound) == result(replace(sound))
    assert result(plant(sound)) != result(sound)


@pytest.mark.parametrize(("drift", "same"), [(1e-6, True), (1e-2, False)])
def test_only_on_another_number_of_processes_weights_may_differ_and_only_by_rounding(
    sound: History, drift: float, same: bool
) -> None:
    measure = result(sound)
    weights = {p: [n + drift for n in numbers] for p, numbers in measure["weights"].items()}
    assert all(weights.values())
    measure = {**other_versions(measure), "weights": weights}
    assert not same_result(replace(sound, worlds={"one": frozenset({2})}), measure)
    rescaled = replace(sound, worlds={"one": frozenset({1, 2})})
    assert same_result(rescaled, measure) is same
    assert same_result(rescaled, result(sound))


def other_versions(measure: dict[str, Any]) -> dict[str, Any]:
    """A result of models with other digests."""
    ours = {p: "other" for p in measure["versions"] if "/trained_model/" in p}
    assert ours
    return {**measure, "versions": {**measure["versions"], **ours}}


def test_a_process_that_works_on_in_the_home_is_found(tmp_path: Path) -> None:
    environment = {**os.environ, "ML_ASSETS_HOME": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", "input()"], env=environment, stdin=-1) as process:
        (found,) = read_home(tmp_path).processes
        process.kill()
    assert "input()" in found
    assert read_home(tmp_path).processes == ()


@pytest.mark.parametrize(
    ("folder", "plant", "found"),
    [
        ("ml_assets", "KeyError('x')", Failure("breaks", "KeyError", "", ours=True)),
        ("dagster", "KeyError('x')", Failure("breaks", "KeyError", "", ours=False)),
        ("ml_assets", "dg.Failure('It is full.')", Failure("breaks", "Failure", "It is full.")),
    ],
)
def test_a_failed_step_is_read_with_its_error_its_sentences_and_whose_code_it_was(
    tmp_path: Path, folder: str, plant: str, found: Failure
) -> None:
    program = f"""
import dagster as dg

code = compile("raise {plant}", "/site-packages/{folder}/work.py", "exec")

@dg.op
def breaks():
    exec(code, {{"dg": dg}})

@dg.job
def work():
    breaks()

work.execute_in_process(instance=dg.DagsterInstance.get(), raise_on_error=False)
"""
    (tmp_path / "dagster").mkdir()
    said_by(program, env={**os.environ, "DAGSTER_HOME": str(tmp_path / "dagster")})
    assert [*failures_of(tmp_path)] == [found]


def test_the_checker_shares_no_code_with_the_product() -> None:
    loaded = (
        f"import {checker.__name__}, sys; print(*(m for m in sys.modules if 'ml_assets.' in m))"
    )
    said = said_by(loaded)
    assert [name for name in said.split() if name.startswith("ml_assets.")] == []
