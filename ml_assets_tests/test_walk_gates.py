"""Every gate on a real pipeline: what it says, what is measured once, and what uses itself up."""

import os

import dagster as dg
import pytest

from ml_assets.assets.evaluation_report.stored_report import read_report
from ml_assets.assets.released_model import gate_decision
from ml_assets.records.ledger.chain import read, record_decision
from ml_assets.records.ledger.stages import champion
from ml_assets.records.tracking.mlflow_server import Server
from ml_assets.spec.records import Decision, SeedSpread
from ml_assets.store.layout import Address, read_record
from ml_assets.store.open import open_snapshots
from ml_assets.store.pipeline_context import PipelineState, open_pipeline
from ml_assets_tests.conftest import Cli
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

GATES = """\
    - {kind: champion, margin: 10.0, seeds: 2}
    - {kind: slices, columns: [species], metric: accuracy, at_least: 0.1, min_rows: 3}
    - {kind: slices, name: slices_against, columns: [species], margin: 10.0, min_rows: 3}
    - {kind: gap, column: species, at_most: 10.0, min_rows: 3}
    - {kind: calibration, at_most: 0.9}
    - {kind: robustness, at_most: 10.0}
    - {kind: latency, at_most_p99_ms: 60000}
    - {kind: throughput, at_least_rows_per_second: 1}
    - {kind: memory, at_most_mb: 60000}
    - {kind: data_evidence}
    - {kind: holdout_budget, at_most: 1}
"""
SPEC = irises.SPEC.replace("    - {kind: champion}\n", GATES).replace(
    "    block: row\n", "    block: row\n    slices: [species]\n"
)
OTHER = SPEC.replace("epochs: 30", "epochs: 32")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    found = World(tmp_path_factory.mktemp("gates")).plant(irises)
    declare(found, SPEC)
    found.cli("run", "irises")
    return found


def declare(world: World, spec: str) -> None:
    (world.pipelines / "irises" / "defs.yaml").write_text(spec)


def decision(world: World) -> Decision:
    store = open_snapshots(world.settings.snapshots)
    return [e.decision for e in read(store, "irises") if e.decision is not None][-1]


def released(world: World) -> str | None:
    return champion(read(open_snapshots(world.settings.snapshots), "irises"))


def trainings(world: World) -> int:
    return len(list(world.root.glob("state/**/sessions/irises-train-*")))


def spreads(world: World) -> list[SeedSpread]:
    store = open_snapshots(world.settings.snapshots)
    head = store.resolve()
    files = store.list(head, "tables/irises/evaluation_report/all/seeds-")
    return [SeedSpread.model_validate_json(store.read_bytes(head, file.path)) for file in files]


def shown(world: World, gate: str) -> set[str]:
    """What the UI shows beside a gate's newest result."""
    key = dg.AssetCheckKey(dg.AssetKey(["irises", "evaluation_report"]), gate)
    with world.instance() as instance:
        storage = instance.event_log_storage
        record = storage.get_latest_asset_check_execution_by_key([key])[key]
        assert record.event is not None and record.event.dagster_event is not None
        return set(record.event.dagster_event.asset_check_evaluation_data.metadata)


def test_mlflow_has_the_metrics_the_gates_and_the_hours_on_the_run_of_the_model(
    world: World,
) -> None:
    settings, made = world.settings, decision(world)
    store = open_snapshots(settings.snapshots)
    record = read_record(store, store.resolve("main"), Address("irises", "trained_model"))
    report = read_report(open_pipeline("irises", settings).now())
    assert record is not None
    client = Server(settings.tracking_uri, settings.home).client()
    run = client.get_run(record.attributes["mlflow_run"]).data
    for name, interval in report.metrics.items():
        assert run.metrics[f"holdout/{name}"] == pytest.approx(interval.value)
    for gate in made.gates:
        assert run.tags[f"gate.{gate.name}"].startswith("pass: " if gate.passed else "fail: ")
        if gate.value is not None:
            assert run.metrics[f"gate/{gate.name}/value"] == pytest.approx(gate.value)
    assert run.tags["ml_assets.decision"].startswith("pass: ")
    assert run.metrics["node_hours"] > 0
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == os.environ["DO_NOT_TRACK"] == "true"


def test_a_first_model_passes_and_each_gate_gives_value_bound_interval_and_a_sentence(
    world: World,
) -> None:
    assert released(world) == decision(world).evidence.model
    by_name = {gate.name: gate for gate in decision(world).gates}
    for name in ("slices", "gap", "calibration", "robustness"):
        gate = by_name[name]
        assert gate.interval is not None and gate.interval.low <= gate.interval.high
        assert gate.value is not None and gate.bound is not None
    assert "species" in by_name["slices"].reason and "the worst of 3" in by_name["slices"].reason
    assert "inputs missing" in by_name["robustness"].reason or "every number" in (
        by_name["robustness"].reason
    )
    assert by_name["slices_against"].reason == by_name["champion"].reason == "no champion yet"
    assert by_name["data_evidence"].reason == "1 partition of 1 table: no contract was broken"
    assert by_name["holdout_budget"].value == 1
    assert by_name["memory"].value is not None and by_name["memory"].value > 10
    assert {"value", "bound", "estimate", "low", "high"} <= shown(world, "calibration")


def test_a_second_model_is_past_the_budget_and_the_spread_between_seeds_is_measured_once(
    world: World,
) -> None:
    assert trainings(world) == 1 and spreads(world) == []
    declare(world, OTHER)
    said = world.cli("run", "irises", "--verbose", code=3)
    assert "the spread over 2 seeds is measured, once for this spec" in said
    (spread,) = spreads(world)
    assert spread.seeds == (0, 1) and spread.loss > 0
    assert trainings(world) == 3, "the first model, the second, and that of another seed"
    refused = [gate for gate in decision(world).gates if not gate.passed]
    assert [gate.name for gate in refused] == ["holdout_budget"]
    assert "model number 2 that is judged by rows of this holdout, past the budget of 1" in said

    declare(world, OTHER.replace("holdout_budget, at_most: 1", "holdout_budget, at_most: 2"))
    again = world.cli("run", "irises")
    assert "spread over" not in again and trainings(world) == 3
    assert spreads(world) == [spread]
    passed = {gate.name: gate for gate in decision(world).gates}
    gap = passed["champion"].interval
    assert gap is not None and gap.low < gap.value < gap.high
    assert gap.high - gap.value > spread.loss, "another seed would differ by as much"
    assert passed["slices_against"].interval is not None
    assert released(world) == decision(world).evidence.model


def test_two_models_that_are_decided_on_at_the_same_moment_are_not_both_the_same_number(
    world: World, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """Another home with the same store decides while our gates look."""
    judge, theirs = gate_decision.decide_now, [decision(world)]

    def decide_beside_another(state: PipelineState, run: str) -> Decision:
        ours = judge(state, run)
        while theirs:
            other = theirs.pop()
            model = other.evidence.model_copy(update={"model": "f" * 64})
            record_decision(state.store, other.model_copy(update={"evidence": model}), "they")
        return ours

    monkeypatch.setattr(gate_decision, "decide_now", decide_beside_another)
    declare(world, SPEC.replace("epochs: 30", "epochs: 34").replace("at_most: 1", "at_most: 3"))
    world.enter(monkeypatch)
    monkeypatch.setenv("DAGSTER_HOME", "")  # the command sets its own
    said = cli("run", "irises", code=3).out
    assert "model number 4 that is judged by rows of this holdout, past the budget of 3" in said
    assert not decision(world).passed
    assert released(world) not in (decision(world).evidence.model, "f" * 64)


def test_the_report_shows_the_intervals(world: World) -> None:
    (page, *_) = world.root.glob("state/**/reports/irises/*.html")
    assert '<th class="n">Interval</th>' in page.read_text()
