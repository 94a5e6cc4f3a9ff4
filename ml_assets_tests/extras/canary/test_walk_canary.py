"""Three weeks of a pipeline that asks for canary evidence: wait, prove it, be refused."""

import json
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from fastapi.testclient import TestClient

from ml_assets.assets.evaluation_report.drift_baseline import PeriodLoss
from ml_assets.assets.raw_snapshot.sources import Sources
from ml_assets.assets.released_model.promote import Released, promote
from ml_assets.assets.released_model.rollback import abort
from ml_assets.definitions import build
from ml_assets.errors import EvidenceError, Recalled
from ml_assets.extras.api.access import Caller
from ml_assets.extras.api.app import Api
from ml_assets.extras.canary.canary_report.evidence import canary_evidence
from ml_assets.extras.canary.promoted_model.asset import move_on
from ml_assets.extras.serving.online_evaluation.loss import OnlineReport, ServedLoss
from ml_assets.graph.code_version import code_version_of
from ml_assets.graph.publish import Draft, Work
from ml_assets.records.ledger.audit import problems
from ml_assets.records.ledger.chain import read, record_decision
from ml_assets.records.ledger.stages import latest_decision, stages
from ml_assets.records.load_release import provenance_in_force
from ml_assets.records.recall_files import active
from ml_assets.spec.base import canonical_json, digest_of
from ml_assets.spec.records import Interval, LedgerEntry
from ml_assets.store.layout import Address
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.automation.conftest import asked_for
from ml_assets_tests.extras.api.test_launch import made_elsewhere
from ml_assets_tests.worlds import deliveries
from ml_assets_tests.worlds.world import World

QUICK = {
    "{kind: champion}": "{kind: champion, margin: 10.0}",
    "epochs: 6": "epochs: 1",
    "processes: 2": "processes: 1",
    "strategy: shard": "strategy: replicate",
    "at_least: 0.55": "at_least: 0.01",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The first model is in canary; its week has not come."""
    found = World(tmp_path_factory.mktemp("canary")).plant(
        deliveries, automation="{landing: {retrain: true}}"
    )
    found.edit("deliveries", *QUICK.items())
    with spec_of(found).open("a") as spec:
        spec.write("  release: {to: production, canary: {periods: 1}}\n")
    found.cli("run", "deliveries")
    return found


def spec_of(world: World) -> Path:
    return world.pipelines / "deliveries" / "defs.yaml"


def ledger(world: World) -> tuple[LedgerEntry, ...]:
    entries = read(open_pipeline("deliveries", world.settings).store, "deliveries")
    assert problems(entries) == ()
    return entries


def alone(
    world: World, *stages: str, checks: set[dg.AssetCheckKey] | None = None, **run: Any
) -> str:
    """Materialize assets as a click does, without checks but these; what the failure says."""
    with world.instance() as instance, pytest.MonkeyPatch.context() as environment:
        world.enter(environment)
        defs = build(world.settings, only="deliveries")
        keys = {dg.AssetKey(["deliveries", stage]) for stage in stages}
        job = defs.resolve_implicit_global_asset_job_def().get_subset(
            asset_selection=keys, asset_check_selection=checks or set()
        )
        result = job.execute_in_process(instance=instance, raise_on_error=False, **run)
    return " ".join(str(e.step_failure_data.error) for e in result.all_events if e.is_step_failure)


def head_of(world: World) -> str:
    return open_pipeline("deliveries", world.settings).store.resolve()


def version_of(world: World, source: str = "orders", week: str = "2024-04-01") -> str:
    """The version of a week, at first the canary's."""
    state = open_pipeline("deliveries", world.settings).now()
    address = Address("deliveries", "raw_snapshot", source, week)
    record = state.record(address)
    assert record is not None
    return record.data_version[:12]


def landing(world: World) -> dg.SensorResult:
    """One tick of the landing sensor."""
    with world.instance() as instance, pytest.MonkeyPatch.context() as environment:
        world.enter(environment)
        sensor = build(world.settings, only="deliveries").resolve_sensor_def("deliveries__landing")
        with dg.build_sensor_context(instance, resources=asked_for(sensor)) as context:
            found = sensor.evaluate_tick(context)
    assert found.run_requests, found.skip_message
    return dg.SensorResult(run_requests=found.run_requests)


def test_a_model_that_passed_its_gates_waits_in_canary_for_the_next_week(world: World) -> None:
    (model,) = stages(ledger(world)).values()
    assert stages(ledger(world)) == {"canary": model}
    said = world.cli("release", "promote", "deliveries", code=3)
    waits = f"model {model[:12]} is in canary and waits for the partition 2024-03-25"
    assert waits in said
    assert "nothing is released yet" in world.cli("status", "deliveries")
    assert world.cli("run", "deliveries", "--dry-run").startswith(f"wait  canary: {waits}")
    assert waits in alone(world, "promoted_model"), "a click does not go round it"
    assert stages(ledger(world)) == {"canary": model}


def test_the_next_run_judges_it_on_exactly_that_week_and_then_trains_another(world: World) -> None:
    (model,) = stages(ledger(world)).values()
    deliveries.land(world.sources, 13)
    said = world.cli("run", "deliveries")
    assert "make  canary: model" in said
    assert said.index("deliveries__promoted_model") < said.index("deliveries__train")
    now = stages(ledger(world))
    assert now["production"] == model
    assert now["canary"] != model
    (judged,) = [e.decision for e in ledger(world) if e.decision and e.decision.canary]
    assert judged.canary
    assert (judged.canary.first, judged.canary.last) == ("2024-03-25", "2024-03-25")
    assert judged.canary.rows == deliveries.ORDERS
    assert judged.evidence.champion is None
    release = world.status("deliveries")["release"]
    assert (release["version"], release["stage"]) == (model, "production")
    assert world.data_version("deliveries", "promoted_model") == model
    said = world.cli("release", "verify", "deliveries")
    assert "ok       canary gate: decided again on the same report, each has the same" in said


def test_a_model_that_passed_its_canary_on_rows_that_are_recalled_says_so_wherever_it_is_used(
    world: World,
) -> None:
    """It was made from none of them, so it stays."""
    model = stages(ledger(world))["production"]
    who = ("--author", "ada", "--reason", "the week is garbage")
    was = version_of(world, week="2024-03-25")
    snapshot = f"deliveries/raw_snapshot/raw_orders/2024-03-25@{was}"
    reached = f"the canary of model {model[:12]}, in production of deliveries, was judged on these"
    assert reached in world.cli("data", "recall", snapshot, "--dry-run")
    assert reached in world.cli("data", "recall", snapshot, *who)
    said = f"the rows by which model {model[:12]} passed its canary are recalled by ada"
    # the next model learned from these rows: it is refused
    verified = world.cli("release", "verify", "deliveries", code=3)
    assert f"note     production: {said}" in verified
    assert "note     canary gate: its rows are recalled" in verified
    assert f"note: {said}" in world.cli("status", "deliveries")
    (recall,) = active(open_pipeline("deliveries", world.settings).store, head_of(world))
    world.cli("data", "recall", "--lift", recall.id, *who)
    assert "passed its canary" not in world.cli("status", "deliveries")


def promoted_all_the_same(world: World, elsewhere: Path) -> World:
    """A copy of it where the process that decided had other gates: the newest refusal passed."""
    # by another process: one that closes a database loses the locks of its own connections to it
    parts = [str(world.root / part) for part in ("state", "pipelines")]
    subprocess.run(["cp", "-r", *parts, str(elsewhere)], check=True)
    other = World(elsewhere, {"ML_ASSETS_SOURCES": str(world.sources)})
    with pytest.MonkeyPatch.context() as environment:
        other.enter(environment)
        state = open_pipeline("deliveries", other.settings).now()
        refused, now = ledger(other)[-1].decision, canary_evidence(state, ledger(other))
        by_gates = latest_decision(ledger(other), now.model)
        assert refused and by_gates
        made_from = provenance_in_force(state.store, "deliveries", now.model)
        gates = tuple(one.model_copy(update={"passed": True}) for one in refused.gates)
        passed = refused.model_copy(update={"gates": gates, "passed": True})
        under = by_gates.evidence.model_copy(update={"policy": now.policy})
        for forged in (by_gates.model_copy(update={"evidence": under}), passed):
            record_decision(state.store, forged, "mallory", made_from)
        moved = promote(
            state.store,
            "deliveries",
            lambda entries: canary_evidence(state, entries),
            state.spec.release,
            "mallory",
            "run",
        )
    assert isinstance(moved, Released), moved
    return other


def test_a_canary_that_does_not_pass_stays_and_the_champion_too(
    world: World, tmp_path: Path
) -> None:
    """Asked to be better by more than any model can be."""
    before = stages(ledger(world))
    deliveries.land(world.sources, 14)
    arrivals = world.sources / "arrivals" / "2024-04-01.jsonl"
    every = arrivals.read_text()
    on_time = [line for line in every.splitlines() if not json.loads(line)["late"]]
    deliveries.deliver(arrivals, "\n".join(on_time[:20]) + "\n")
    world.cli("run", "deliveries", "--through", "feature_set")
    said = world.cli("release", "promote", "deliveries", code=3)
    assert "8% of the rows of 2024-04-01 to 2024-04-01 have a label 'late'" in said
    deliveries.deliver(arrivals, every)
    world.cli("run", "deliveries", "--through", "feature_set")
    assert "no canary decision on model" in alone(world, "canary_report", "promoted_model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(world.extra, "ML_ASSETS_SOURCES", str(world.root / "elsewhere"))
        assert "was read from" in alone(world, "promoted_model"), "its sources are asked for"
    features = world.pipelines / "deliveries" / "features.py"
    honest = features.read_text()
    features.write_text(honest.replace("return ", "pl.col('x')\n    return ", 1))
    said = alone(world, "promoted_model")
    features.write_text(honest)
    assert "deliveries/feature_set: made by other code" in said, "and the code"
    features.write_text(honest.replace("return ", "pl.col('x')\n    return ", 1))
    world.cli("run", "deliveries", "--through", "feature_set")
    features.write_text(honest)
    said = alone(world, "canary_report", "promoted_model")
    assert "deliveries/feature_set: made by other code" in said, "and of the rows that decide"
    world.cli("run", "deliveries", "--through", "feature_set")
    week = ("data", "recall", f"deliveries/raw_snapshot/raw_orders/2024-04-01@{version_of(world)}")
    who = ("--author", "ada", "--reason", "the week is garbage")
    begun = open_pipeline("deliveries", world.settings).now()
    world.cli(*week, *who)
    with pytest.raises(Recalled, match="is recalled by ada"):  # by a step that began before
        canary_evidence(begun, ledger(world))
    assert "is recalled by ada" in world.cli("release", "promote", "deliveries", code=3)
    assert "is recalled by ada" in alone(world, "canary_report", "promoted_model")
    (recall,) = active(open_pipeline("deliveries", world.settings).store, head_of(world))
    world.cli("data", "recall", "--lift", recall.id, *who)
    (request,) = landing(world).run_requests or ()
    assert request.job_name == "deliveries__promote", "before the model that would replace it"
    assert request.tags["why"].startswith(f"canary [2024-04-01]: model {before['canary'][:12]}")
    assert [key.path[-1] for key in request.asset_selection or ()] == [
        "canary_report",
        "promoted_model",
    ]
    spec = spec_of(world)
    hard = "{kind: champion, rule: superior, margin: 10.0}"
    spec.write_text(spec.read_text().replace("{kind: champion, margin: 10.0}", hard))
    said = world.cli("release", "promote", "deliveries", code=3)
    assert "[fail] canary: log-loss minus that of champion" in said
    assert "The model stays in canary" in said
    assert "Dependencies for step" not in said, "why it was refused is said once"
    assert stages(ledger(world)) == before
    line = ledger(world)[-1]
    assert line.decision and line.decision.canary and not line.decision.passed
    said = promoted_all_the_same(world, tmp_path).cli("release", "verify", "deliveries", code=3)
    assert "refused  canary gate: decided again on the same report" in said
    assert "the gates of this code give another outcome for champion" in said
    assert line.decision.evidence.champion == before["production"]
    assert "remains refused" in world.cli("release", "promote", "deliveries", code=3)
    rows = len(ledger(world))
    deliveries.deliver(arrivals, every.replace('"late": true', '"late": false', 3))
    world.cli("run", "deliveries", "--through", "feature_set")
    said = world.cli("release", "promote", "deliveries", code=3)
    assert "the rows of 2024-04-01 were changed since. A canary is judged once" in said
    said = alone(
        world,
        "canary_report",
        "promoted_model",
        checks={dg.AssetCheckKey(dg.AssetKey(["deliveries", "canary_report"]), "canary")},
    )
    assert "A canary is judged once" in said, "a click does not go round it"
    assert len(ledger(world)) == rows
    deliveries.deliver(arrivals, every)
    world.cli("run", "deliveries", "--through", "feature_set")
    assert "remains refused" in world.cli("release", "promote", "deliveries", code=3)
    (request,) = landing(world).run_requests or ()
    assert request.job_name == "deliveries__refresh", "a refused canary holds nobody up"
    refused = json.loads(world.cli("status", "deliveries", "--json"))["canary"]
    assert refused["version"] == before["canary"]
    assert "refused by 1 of 1 gate" in refused["decision"]


def test_rows_that_were_wrong_are_judged_again_once_the_old_ones_are_recalled(
    world: World,
) -> None:
    before, rows = stages(ledger(world)), len(ledger(world))
    was = version_of(world, "arrivals")
    arrivals = world.sources / "arrivals" / "2024-04-01.jsonl"
    wrong = arrivals.read_text()
    deliveries.deliver(arrivals, wrong.replace('"late": true', '"late": false', 3))
    world.cli("run", "deliveries", "--through", "feature_set")
    assert "A canary is judged once" in world.cli("release", "promote", "deliveries", code=3)
    who = ("--author", "ada", "--reason", "three outcomes were wrong")
    world.cli("data", "recall", f"deliveries/raw_snapshot/raw_arrivals/2024-04-01@{was}", *who)
    assert "[fail] canary: log-loss" in world.cli("release", "promote", "deliveries", code=3)
    line = ledger(world)[-1]
    assert line.decision and line.decision.canary and not line.decision.passed
    assert len(ledger(world)) > rows and stages(ledger(world)) == before
    again = world.cli("release", "promote", "deliveries", code=3)
    assert "remains refused" in again, "once more, and no oftener"
    (recall,) = active(open_pipeline("deliveries", world.settings).store, head_of(world))
    world.cli("data", "recall", "--lift", recall.id, *who)


def served(world: World, canary: str, champion: str, worse: float) -> None:
    """What online evaluation publishes, of a canary that lost by so much."""
    pipeline = open_pipeline("deliveries", world.settings)
    did = (("canary", canary, 0.4 + worse), ("production", champion, 0.4))
    models = [
        ServedLoss(
            stage=stage,
            model=model,
            units=400,
            loss=Interval(value=mean, low=mean - 0.02, high=mean + 0.02),
            told=PeriodLoss(period="", units=400, blocks=7, mean=mean, error=0.01),
        )
        for stage, model, mean in did
    ]
    report = OnlineReport(
        pipeline="deliveries",
        period="2024-04-01",
        loss="log-loss",
        labelled=800,
        models=tuple(models),
        difference=Interval(value=worse, low=worse - 0.05, high=worse + 0.05),
    )
    address = pipeline.address("online_evaluation", partition="2024-04-01")
    work = Work(address, code_version_of(pipeline, "online_evaluation"), (), "r", str(worse))
    with Draft(pipeline, work, pipeline.store.resolve(), rows=800) as draft:
        draft.text("report.json", canonical_json(report))
        draft.publish(attributes={}, data_version=digest_of(report))


def test_a_canary_that_lost_on_what_it_was_served_stays_until_its_traffic_says_otherwise(
    world: World,
) -> None:
    before = stages(ledger(world))
    spec = spec_of(world)
    text = spec.read_text().replace("rule: superior, margin: 10.0", "margin: 10.0")
    rollout = "canary: {periods: 1}, rollout: {entity: [order]}}"
    spec.write_text(text.replace("canary: {periods: 1}}", rollout))
    served(world, before["canary"], before["production"], worse=0.2)
    said = world.cli("release", "promote", "deliveries", code=3)
    assert "worse than chance explains" in said
    line = ledger(world)[-1]
    assert line.decision
    assert [(one.name, one.passed) for one in line.decision.gates][1:] == [
        ("online_evaluation", False)
    ]
    assert line.decision.gates[0].passed, "the comparison alone would have let it through"
    assert stages(ledger(world)) == before
    assert "remains refused" in world.cli("release", "promote", "deliveries", code=3)
    served(world, before["canary"], before["production"], worse=-0.01)
    report = dg.AssetKey(["deliveries", "canary_report"])
    alone(world, "canary_report", checks={dg.AssetCheckKey(report, "canary")})
    line = ledger(world)[-1]
    assert line.decision and line.decision.passed
    served(world, before["canary"], before["production"], worse=0.2)
    said = alone(world, "promoted_model")
    assert "worse than chance explains" in said, "labels came after the decision"
    served(world, before["canary"], before["production"], worse=-0.01)
    begun, text = open_pipeline("deliveries", world.settings).now(), spec.read_text()
    spec.write_text(text.replace("margin: 10.0", "margin: 0.0"))
    with pytest.raises(EvidenceError, match="gates or release changed in"):
        move_on(begun, "begun before")
    spec.write_text(text)
    assert stages(ledger(world)) == before
    world.cli("release", "promote", "deliveries")
    assert stages(ledger(world))["production"] == before["canary"]


def test_an_aborted_canary_is_not_released_again_by_itself(world: World) -> None:
    """Its gates' decision still fits all evidence: a click and a run are refused."""
    world.cli("run", "deliveries", "--epochs", "2")
    bad = stages(ledger(world))["canary"]
    pipeline = open_pipeline("deliveries", world.settings)
    assert abort(pipeline, bad, "the server", "errors: it could not answer 9 of 50 rows")
    there = stages(ledger(world))
    assert "canary" not in there
    assert "taken out" in alone(world, "released_model")
    said = world.cli("run", "deliveries", "--epochs", "2")
    assert "skip  deliveries/released_model: it was taken out" in said
    assert stages(ledger(world)) == there


def test_a_model_that_was_made_elsewhere_goes_to_canary_by_the_run_that_judges_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    handover = world.root / "handover"
    landed = len([*(world.sources / "orders").iterdir()])
    deliveries.land(world.sources, landed + 1)  # its makers may have it, read here or not
    today = deliveries.START + timedelta(weeks=landed, days=2)  # that week is not over
    monkeypatch.setattr(Sources, "now", staticmethod(lambda: today))
    monkeypatch.setenv("ML_ASSETS_REGISTER_FROM", str(handover))
    monkeypatch.setenv("DAGSTER_HOME", str(world.settings.dagster_home))
    body = {
        "name": "deliveries",
        "version": "1",
        "artifact_uri": str(made_elsewhere(world, handover / "one", "deliveries")),
        "stage": "canary",
    }
    with TestClient(Api(world.settings).app({"t": Caller("olga", operator=True)})) as client:
        token = {"Authorization": "Bearer t"}
        answer = client.post("/api/v1/models/register", json=body, headers=token)
    assert (answer.status_code, "Dagster does not answer" in answer.text) == (503, True)
    model = ledger(world)[-1].model
    spec = open_pipeline("deliveries", world.settings).spec
    report = dg.AssetKey(["deliveries", "evaluation_report"])
    said = alone(
        world,
        *("checkpoints", "trained_model", "evaluation_report", "released_model"),
        checks={dg.AssetCheckKey(report, gate.name) for gate in spec.gates},
        run_config={"ops": {"deliveries__train": {"config": {"registered": model}}}},
    )
    assert said == ""
    assert stages(ledger(world))["canary"] == model
    (judged,) = [e.decision for e in ledger(world) if e.decision and e.model == model]
    assert (judged.gates[-1].name, judged.gates[-1].passed) == ("made_elsewhere", True)

    monkeypatch.undo()
    world.cli("run", "deliveries", "--through", "feature_set")
    week = (deliveries.START + timedelta(weeks=landed + 1)).date()
    said = world.cli("release", "promote", "deliveries", code=3)
    assert f"waits for the partition {week} of" in said
