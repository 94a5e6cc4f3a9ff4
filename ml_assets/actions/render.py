"""Prints the Kubernetes Jobs of a training, its scores and its sanity checks; asks no cluster."""

from typing import Any, Literal

import yaml

from ml_assets.errors import SpecError, counted
from ml_assets.launch.kubernetes.manifest import (
    JobOrder,
    Manifest,
    manifests,
    runs_on_spot,
    save_seconds,
)
from ml_assets.settings import Cluster
from ml_assets.spec.cluster import MAX_NODES, over_nodes
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.training_program import World, training_world
from ml_assets.spec.training_program.pod import REQUEST, attempt_of

Verb = Literal["train", "score", "sanity"]
UNKNOWN_DIGEST = "0" * 20
"""Stands for the digest in a session's name: it is made of the data, which is not looked at."""


def job_order(
    spec: PipelineSpec, settings: Cluster, verb: Verb, nodes: int | None = None, attempt: int = 1
) -> JobOrder:
    """The order of an attempt, as the launcher would give it.

    Args:
        nodes: of a training, when it goes on with fewer than ``cluster.nodes``; None: all.

    Raises:
        SpecError: it never runs on so many nodes, or there is no such attempt.
    """
    if attempt < 1:
        raise SpecError(f"{spec.name}: there is no attempt {attempt}; the first is 1.")
    world = World(threads=spec.training.threads)
    if verb == "train":
        world = over_nodes(training_world(spec.model, spec.training), spec.cluster)
    if nodes is not None:
        world = world.model_copy(update={"nodes": _as_few_as(spec, verb, nodes)})
    session = f"{spec.name}-{verb}-{UNKNOWN_DIGEST}"
    return JobOrder(
        pipeline=spec.name,
        session=session,
        attempt=attempt,
        verb=verb,
        world=world,
        cluster=spec.cluster,
        spot=spec.training.spot is not None and runs_on_spot(verb, spec.cluster),
        request=f"{settings.objects}/{attempt_of(session, attempt)}/{REQUEST}",
        grace_seconds=save_seconds(spec.training if verb == "train" else None),
    )


def rendered(order: JobOrder, settings: Cluster) -> tuple[str, list[Manifest]]:
    """Return what would be created, as a sentence and as manifests in their order."""
    made = manifests(order, settings)
    kinds = " and ".join(f"{one['kind']} {one['metadata']['name']}" for one in made)
    world = order.world
    where = (
        f"{world.nodes} pods of {counted(world.procs, 'process')}"
        if world.nodes > 1
        else f"a pod of {counted(world.procs, 'process')}"
    )
    said = f"{order.pipeline}: attempt {order.attempt} to {order.verb} would create {kinds}"
    return f"{said} in namespace {settings.namespace}: {where}.", made


def as_yaml(made: list[Manifest]) -> str:
    """One document each, as ``kubectl apply -f -`` reads them."""
    return yaml.dump_all(made, Dumper=_Plain, sort_keys=False, explicit_start=True, width=100)


def as_list(made: list[Manifest]) -> dict[str, Any]:
    """All of them as one object, for JSON."""
    return {"apiVersion": "v1", "kind": "List", "items": made}


class _Plain(yaml.SafeDumper):
    """Repeats what comes twice: a manifest is read by people."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _as_few_as(spec: PipelineSpec, verb: Verb, nodes: int) -> int:
    most = spec.cluster.nodes if verb == "train" else 1
    if 1 <= nodes <= min(most, MAX_NODES):
        return nodes
    raise SpecError(
        f"{spec.name}: {verb} never runs on {nodes} nodes: it takes"
        f" {f'1 to {most}, cluster.nodes of the spec' if verb == 'train' else 'one'}."
    )
