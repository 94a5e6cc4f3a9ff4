"""What Dagster's own API lets somebody write: events, wipes, limits, steps; no gate reads it."""

from typing import Any

from dagster.components.component.app_managed_state import (
    AppManagedComponentEntry,
    write_app_managed_component_entry,
)

from ml_assets_tests.red_team.conftest import NAME, Scene
from ml_assets_tests.red_team.test_release import (
    LAUNCH,
    _failure_of,
    params,
    require_refused,
    served,
)

STAGES = ("training_set", "trained_model", "evaluation_report", "released_model")
SAID = "__typename ... on PythonError { message }"
CHECK = f"""
mutation Say($said: ReportAssetCheckEvaluationsParams!) {{
  reportAssetCheckEvaluations(eventParams: $said) {{ {SAID} }}
}}
"""
EVENT = f"""
mutation Say($said: ReportRunlessAssetEventsParams!) {{
  reportRunlessAssetEvents(eventParams: $said) {{ {SAID} }}
}}
"""
WIPE = f"""
mutation Wipe($all: [PartitionsByAssetSelector!]!) {{
  wipeAssets(assetPartitionRanges: $all) {{ {SAID} }}
}}
"""
LIMIT = f'mutation {{ setConcurrencyLimit(concurrencyKey: "{NAME}", limit: 100) }}'
FREE = 'mutation { freeConcurrencySlots(runId: "any") }'
COMPONENT = f"""
mutation {{
  setAppManagedComponent(
    attributes: "{{}}", componentId: "x", componentType: "this.Code", locationName: "ml_assets"
  ) {{ {SAID} }}
}}
"""
AGAIN = """
mutation Again($params: ExecutionParams!) {
  launchPipelineReexecution(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId stepKeysToExecute } }
    ... on PythonError { message }
  }
}
"""


def key(stage: str) -> dict[str, list[str]]:
    return {"path": [NAME, *stage.split("/")]}


def test_what_the_api_lets_anybody_write_releases_nothing(refused: Scene) -> None:
    """Forged checks and materializations, all wiped, no limits: then the steps of a failed run."""
    with refused.world.instance() as instance:
        failed = next(run.run_id for run in instance.get_runs() if not run.is_success)
        planted = AppManagedComponentEntry(component_type="this.Code", attributes="{}")
        assert instance.defs_state_storage is not None
        write_app_managed_component_entry(
            instance.defs_state_storage, "ml_assets", "x", planted
        )  # were it loaded, the code location would not come up
    with served(refused) as ask:
        done = "Success"
        for check in ("accuracy_floor", "beats_constant", "too_good", "champion"):
            about = {"assetKey": key("evaluation_report"), "checkName": check, "passed": True}
            answer = ask(CHECK, {"said": {**about, "serializedMetadata": "{}"}})
            assert done in answer["reportAssetCheckEvaluations"]["__typename"]
        for stage in STAGES:
            about = {"eventType": "ASSET_MATERIALIZATION", "assetKey": key(stage)}
            answer = ask(EVENT, {"said": about})["reportRunlessAssetEvents"]
            assert done in answer["__typename"], answer
        assert ask(LIMIT, {}) == {"setConcurrencyLimit": True}
        assert ask(FREE, {}) == {"freeConcurrencySlots": True}
        assert ask(COMPONENT, {})["setAppManagedComponent"]["__typename"] == "UnauthorizedError"
        asked = [{"assetKey": key(stage)} for stage in STAGES]
        assert done in ask(WIPE, {"all": asked})["wipeAssets"]["__typename"]
        again: dict[str, Any] = params("released_model", tags={"dagster/partition": "../../x"})
        again["stepKeys"] = [f"{NAME}__released_model"]
        again["executionMetadata"] |= {"rootRunId": failed, "parentRunId": failed}
        answer = ask(AGAIN, {"params": again})["launchPipelineReexecution"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
    with refused.world.instance() as instance:
        said = _failure_of(instance, answer["run"]["runId"])
    require_refused(refused, said)


SAID_OF_EXECUTION = {
    "processes and how they begin": {"multiprocess": {"start_method": {"spawn": {}}}},
    "a module that is imported first": {
        "start_method": {"forkserver": {"preload_modules": ["this"]}}
    },
    "a variable": {"max_concurrent": {"env": "ML_ASSETS_SIGNING_KEY"}},
}


def test_no_run_says_how_its_processes_begin(refused: Scene) -> None:
    with served(refused) as ask:
        for what, said in SAID_OF_EXECUTION.items():
            asked = params("released_model", config={"execution": {"config": said}})
            answer = ask(LAUNCH, {"params": asked})["launchPipelineExecution"]
            assert answer["__typename"] == "RunConfigValidationInvalid", (what, answer)


def test_a_rollback_that_is_refused_says_why_first(refused: Scene) -> None:
    """Not Dagster's own "Error occurred while executing op", with our reason far below."""
    job = refused.definitions().resolve_job_def(f"{NAME}__rollback")
    asked = {"author": "eve", "reason": "because", "to": refused.candidate[:12]}
    config = {"ops": {f"{NAME}__roll_back": {"config": asked}}}
    with refused.world.instance() as instance:
        done = job.execute_in_process(config, instance=instance, raise_on_error=False)
    [failed] = [event.step_failure_data for event in done.all_events if event.is_step_failure]
    assert failed.error is not None
    assert "was never released to production" in failed.error.message
    assert refused.in_production != refused.candidate
