"""A process that launches a session on a cluster, for a test to kill."""

import json
import sys
from pathlib import Path

from ml_assets.launch.kubernetes.launcher import KubernetesLauncher
from ml_assets.launch.launcher import TrainJob
from ml_assets.settings import Cluster
from ml_assets.store.embedded.trust import given_keys
from ml_assets.store.s3.objects import S3Objects
from ml_assets_tests.launch.kubernetes.stage import IMAGE, ONE_NODE, SECRET, URI
from ml_assets_tests.launch.real import train_job, write_set

if __name__ == "__main__":
    home, endpoint, namespace, changes = sys.argv[1:]
    objects = Path(home) / "objects"
    job = train_job(write_set(objects / "shards" / "demo"), processes=1, **json.loads(changes))
    KubernetesLauncher(
        S3Objects(objects, URI),
        Cluster(
            objects=URI,
            image=IMAGE,
            namespace=namespace,
            secret=SECRET,
            s3_endpoint=endpoint,
            s3_region="us-east-1",
        ),
        given_keys,
    ).train(
        TrainJob(job.pipeline, job.model, job.training, job.data, cluster=ONE_NODE),
        lambda event: None,
    )
