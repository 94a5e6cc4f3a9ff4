"""What Dagster's own API lets somebody write: events, wipes, limits, steps; no gate reads it."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dagster as dg
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon
from dagster.components.component.app_managed_state import (
    AppManagedComponentEntry,
    write_app_managed_component_entry,
)
from dagster_graphql.test.utils import execute_dagster_graphql

from ml_assets_tests.red_team.conftest import NAME, SIGNING_KEY, Scene
from ml_assets_tests.red_team.refused_release import require_refused

LAUNCH = """
mutation Launch($params: ExecutionParams!) {
  launchPipelineExecution(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on RunConfigValidationInvalid { errors { message } }
    ... on PythonError { message }
  }
}
"""
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


def params(*stages: str, config: object = None, tags: Mapping[str, str] = {}) -> dict[str, Any]:
    """What the UI sends to launch some assets; without checks where they can be left out."""
    whole = any(stage.startswith("raw_snapshot") for stage in stages)
    return {
        "selector": {
            "repositoryName": "__repository__",
            "repositoryLocationName": "ml_assets",
            "pipelineName": "__ASSET_JOB",
            "assetSelection": [{"path": [NAME, *stage.split("/")]} for stage in stages],
            "assetCheckSelection": None if whole else [],
        },
        "runConfigData": config or {},
        "mode": "default",
        "executionMetadata": {"tags": [{"key": k, "value": v} for k, v in tags.items()]},
    }


Ask = Callable[[str, dict[str, object]], dict[str, Any]]


@contextmanager
def served(scene: Scene) -> Iterator[Ask]:
    """Dagster's GraphQL over the real code server: a question and its variables -> the answer."""
    target = ModuleTarget("ml_assets.definitions", None, str(scene.world.root), "ml_assets")
    with scene.world.instance() as instance, WorkspaceProcessContext(instance, target) as process:

        def ask(question: str, variables: dict[str, object]) -> dict[str, Any]:
            context = process.create_request_context()
            return dict(execute_dagster_graphql(context, question, variables).data)

        yield ask
        list(QueuedRunCoordinatorDaemon(1).run_iteration(process))


def failure_of(instance: dg.DagsterInstance, run_id: str) -> str:
    """What a launched run's step ended with, once it has ended."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        run = instance.get_run_by_id(run_id)
        assert run is not None
        if run.is_finished:
            break
        time.sleep(0.3)
    logs = instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    return "\n".join(str(log.dagster_event.step_failure_data.error) for log in logs)


def key(stage: str) -> dict[str, list[str]]:
    return {"path": [NAME, *stage.split("/")]}


def test_what_the_api_lets_anybody_write_releases_nothing(refused: Scene) -> None:
    """Forged checks and materializations, all wiped, no limits, tags that claim a pass.

    The UI's own API, the real code server and the real daemon's turn: it begins a run without its
    checks, and the steps of a failed run.
    """
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
        everything = [{"assetKey": key(stage)} for stage in STAGES]
        assert done in ask(WIPE, {"all": everything})["wipeAssets"]["__typename"]
        asked = params("released_model", tags={"ml_assets/decision": "passed"})
        first = ask(LAUNCH, {"params": asked})["launchPipelineExecution"]
        assert first["__typename"] == "LaunchRunSuccess", first
        again: dict[str, Any] = params("released_model", tags={"dagster/partition": "../../x"})
        again["stepKeys"] = [f"{NAME}__released_model"]
        again["executionMetadata"] |= {"rootRunId": failed, "parentRunId": failed}
        answer = ask(AGAIN, {"params": again})["launchPipelineReexecution"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
    with refused.world.instance() as instance:
        for launched in (first, answer):
            require_refused(refused, failure_of(instance, launched["run"]["runId"]))


def refusal_of(ask: Ask, asked: dict[str, Any]) -> dict[str, Any]:
    """What is said of a run whose configuration is refused."""
    answer = ask(LAUNCH, {"params": asked})["launchPipelineExecution"]
    assert answer["__typename"] == "RunConfigValidationInvalid", (asked, answer)
    return answer


def test_no_run_takes_more_configuration_than_its_ops_declare(refused: Scene) -> None:
    with served(refused) as ask:
        no_resource_takes_configuration(ask, refused)
        no_op_reads_the_orchestrators_key_by_the_name_of_its_variable(ask)
        no_run_says_how_its_processes_begin(ask)


CONFIGURED = {
    "stores": "root",
    "launcher": "objects",
    "io_manager": "base_dir",
}
"""Resource -> what somebody would have it read or write elsewhere by."""


def no_resource_takes_configuration(ask: Ask, scene: Scene) -> None:
    """A folder of mislabelled rows, a store or a cache of somebody's own: no run names them."""
    for resource, field in CONFIGURED.items():
        mine = {"resources": {resource: {"config": {field: str(scene.world.root / "mine")}}}}
        answer = refusal_of(ask, params(*TRAINED, "released_model", config=mine))
        assert field in answer["errors"][0]["message"]
    known = scene.definitions().get_repository_def().get_top_level_resources()
    for name, resource in known.items():
        taken = getattr(resource.config_schema.config_type, "fields", "anything")
        assert taken == {}, f"{name} can be configured by a run"
    assert {*CONFIGURED} == {*known} - {"mlflow"}, (
        "mlflow is for teams' own assets; what no step asks for is cut"
    )


ASKED = {
    "irises__rollback": ("irises__roll_back", ("author", "reason", "to")),
    "__ASSET_JOB": (
        "irises__train",
        ("fresh", "epochs", "experiment", "hypothesis", "goal"),
    ),
}
"""Job -> its op, and all that a run may say to it."""
TRAINED = ("raw_snapshot/raw_flowers", "training_set", "checkpoints", "trained_model")


def no_op_reads_the_orchestrators_key_by_the_name_of_its_variable(ask: Ask) -> None:
    """The message of a failed rollback would quote it, and a page would show a hypothesis."""
    key = {"env": "ML_ASSETS_SIGNING_KEY"}
    words = {"author": "eve", "reason": "x"}
    for job, (op, fields) in ASKED.items():
        for field in fields:
            said = {**(words if job == "irises__rollback" else {}), field: key}
            asked = params(*TRAINED, config={"ops": {op: {"config": said}}})
            asked["selector"] |= {"pipelineName": job}
            if job != "__ASSET_JOB":
                asked["selector"] |= {"assetSelection": None, "assetCheckSelection": None}
            answer = refusal_of(ask, asked)
            assert field in answer["errors"][0]["message"]
            assert SIGNING_KEY not in json.dumps(answer)


SAID_OF_EXECUTION = {
    "processes and how they begin": {"multiprocess": {"start_method": {"spawn": {}}}},
    "a module that is imported first": {
        "start_method": {"forkserver": {"preload_modules": ["this"]}}
    },
    "a variable": {"max_concurrent": {"env": "ML_ASSETS_SIGNING_KEY"}},
}


def no_run_says_how_its_processes_begin(ask: Ask) -> None:
    for said in SAID_OF_EXECUTION.values():
        refusal_of(ask, params("released_model", config={"execution": {"config": said}}))


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
