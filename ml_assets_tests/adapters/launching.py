"""A Dagster run in a process of its own that trains on a cluster, for a test to stop."""

import json
import sys
from pathlib import Path

import dagster as dg

from ml_assets.adapters.resources import LauncherResource
from ml_assets.launch.launcher import TrainJob
from ml_assets_tests.launch.kubernetes.stage import ONE_NODE
from ml_assets_tests.launch.real import train_job, write_set
from ml_assets_tests.worlds.opened import pipeline_of


@dg.op
def train(launcher: LauncherResource) -> None:
    job = train_job(write_set(HOME / "objects" / "shards" / "demo"), processes=1)
    asked = TrainJob(PIPELINE, job.model, job.training, job.data, cluster=ONE_NODE)
    launcher.launcher(pipeline_of()).train(asked, lambda event: None)


@dg.job
def training() -> None:
    train()


if __name__ == "__main__":
    HOME, PIPELINE = Path(sys.argv[1]), sys.argv[2]
    with dg.DagsterInstance.get() as instance:
        ended = training.execute_in_process(
            instance=instance,
            tags=json.loads(sys.argv[3]),
            resources={"launcher": LauncherResource()},
            raise_on_error=False,
        )
    sys.exit(0 if ended.success else 1)
