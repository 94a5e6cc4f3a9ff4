"""The checker finds nothing in a sound history, and each planted violation in one that is not."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ml_assets_tests.faults import invariants as checker
from ml_assets_tests.faults.history import Failure, History, failures_of, read_home
from ml_assets_tests.faults.invariants import INVARIANTS, result, same_result, violations
from ml_assets_tests.faults.planted import PLANTED, Plant, judged, line, resumed, rewritten, trained
from ml_assets_tests.fresh import said_by
from ml_assets_tests.worlds.world import World


@pytest.fixture(scope="module")
def sound(released: World) -> History:
    """Of two pipelines, with two releases and a refused model."""
    return read_home(released.root / "state", said=("decision: passed",))


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
