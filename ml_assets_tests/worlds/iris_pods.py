"""The irises, trained by pods: a home, its cluster and its store, and faults between two saves."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from ml_assets_tests.servers.kubernetes import ApiServer
from ml_assets_tests.servers.s3 import BUCKET, SECRET, S3Server
from ml_assets_tests.store.s3_rights import PODS, rights_of_pods, secret_of_pods
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

IMAGE = "registry.example/training@sha256:" + "5" * 64
TRAINING: dict[str, Any] = {
    "processes": 2,
    "strategy": "shard",
    "epochs": 60,
    "checkpoint_every": 20,
}
CLUSTER: dict[str, Any] = {
    "nodes": 2,
    "cpu": "1",
    "memory": "2Gi",
    "shared_memory": "256Mi",
    "scratch": "1Gi",
}


def world_on(store: S3Server, server: ApiServer, folder: Path) -> World:
    """A home whose programs run in pods."""
    store.rights[PODS] = rights_of_pods(f"{BUCKET}/state")
    data = secret_of_pods(SECRET)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ml-assets-training"}}
    server.apply({**secret, "data": data})
    world = World(
        folder,
        {
            "ML_ASSETS_LAUNCHER": "kubernetes",
            "ML_ASSETS_OBJECTS": f"s3://{BUCKET}/state",
            "ML_ASSETS_TRAINING_IMAGE": IMAGE,
            "KUBECONFIG": str(server.write_kubeconfig(folder / "kubeconfig")),
            "AWS_ENDPOINT_URL": store.endpoint,
        },
    )
    irises.plant(world.pipelines, world.sources)
    return world


def over_two_pods(world: World, **changes: Any) -> None:
    """Train with FSDP in two pods, and save often."""
    file = world.pipelines / "irises" / "defs.yaml"
    spec = yaml.safe_load(file.read_text())
    spec["attributes"]["training"] |= TRAINING | changes
    spec["attributes"]["cluster"] = CLUSTER
    file.write_text(yaml.safe_dump(spec, sort_keys=False))


@contextmanager
def between_two_saves(
    store: S3Server, going: Callable[[], bool] = lambda: True, attempt: int = 1
) -> Iterator[None]:
    """From the first whole checkpoint of an attempt on, what its pods save waits for the block.

    Args:
        going: asked while the checkpoint is awaited: whether there is still one to come.
    """
    faults, end = store.faults, f".a{attempt}/manifest.json?"
    while not any(m == "PUT" and end in path for m, path in [*faults.requests]):
        assert going(), "it ended before it saved"
        time.sleep(0.02)
    faults.held, faults.at, faults.failing = threading.Event(), f".a{attempt}/", -1
    try:
        yield
    finally:
        faults.failing = 0
        faults.held.set()
