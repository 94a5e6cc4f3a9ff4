"""Where the steps of a run are executed: in its process on a laptop, in pods on a cluster."""

from typing import Any

import dagster as dg
from dagster._core.definitions.job_base import InMemoryJob

from ml_assets.adapters.executor import MOST_STEPS, executor


@dg.op
def nothing() -> None: ...


@dg.job(executor_def=executor("kubernetes"))
def a_job() -> None:
    nothing()


def chosen(instance: dg.DagsterInstance, config: dict[str, Any] | None = None) -> Any:
    """The executor that a run of this instance gets."""
    definition = executor("kubernetes")
    create = definition.executor_creation_fn
    assert create is not None
    return create(
        dg.InitExecutorContext(
            job=InMemoryJob(a_job),
            executor_def=definition,
            executor_config=config or {"max_concurrent": MOST_STEPS},
            instance=instance,
        )
    )


def test_on_a_cluster_each_step_has_a_pod_of_its_own(runs_are_jobs: dg.DagsterInstance) -> None:
    found = chosen(runs_are_jobs, {"max_concurrent": 3})
    assert type(found).__name__ == "StepDelegatingExecutor"
    assert type(found._step_handler).__name__ == "K8sStepHandler"
    assert found._max_concurrent == 3


def test_where_runs_are_processes_steps_are_in_them_though_training_is_on_a_cluster() -> None:
    with dg.instance_for_test() as instance:
        found = chosen(instance)
        assert type(found).__name__ == "InProcessExecutor"


def test_on_a_laptop_steps_are_in_the_process_of_their_run() -> None:
    assert executor("local") is dg.in_process_executor


def test_the_number_of_pods_of_a_run_can_be_set_in_its_configuration() -> None:
    taken = dg.validate_run_config(a_job, {"execution": {"config": {"max_concurrent": 2}}})
    assert taken["execution"] == {"in_pods": {"max_concurrent": 2}}
