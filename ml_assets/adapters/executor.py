"""Chooses how the steps of a run from the UI or the daemon are executed: here, or a pod each."""

import dagster as dg

MOST_STEPS = 4
"""Steps of one run that have a pod at the same time."""
STEPS = {"max_concurrent": dg.Field(int, is_required=False, default_value=MOST_STEPS)}


def executor(launcher: str) -> dg.ExecutorDefinition:
    """The executor for where training runs.

    Args:
        launcher: ``local`` keeps the steps in the run's own process: a process for each would cost
            two seconds of imports a step.
    """
    return in_pods if launcher == "kubernetes" else dg.in_process_executor


@dg.executor(
    name="in_pods",
    config_schema=STEPS,
    requirements=dg.multiple_process_executor_requirements(),
)
def in_pods(context: dg.InitExecutorContext) -> dg.Executor:
    """``k8s_job_executor`` where runs are launched as Jobs; in the run's own process elsewhere.

    The instance decides, not the settings: on a laptop whose training runs on a cluster the UI's
    runs have no image to start a step with. Imported here, for ``dagster_k8s`` takes two seconds
    and a step's own process has no use for it.
    """
    if not launches_jobs(context.instance):
        inside = dg.in_process_executor.executor_creation_fn
        assert inside is not None
        return inside(context._replace(executor_config={"retries": {"enabled": {}}}))
    from dagster_k8s import k8s_job_executor

    create = k8s_job_executor.executor_creation_fn
    assert create is not None
    most = context.executor_config["max_concurrent"]
    return create(
        context._replace(executor_config={"retries": {"enabled": {}}, "max_concurrent": most})
    )


def launches_jobs(instance: dg.DagsterInstance) -> bool:
    """Return whether runs are Jobs of a cluster: then a step's disk is a pod's, and goes with it.

    By the name, for asking with isinstance would import it on a laptop that does not have it.
    """
    return type(instance.run_launcher).__name__ == "K8sRunLauncher"
