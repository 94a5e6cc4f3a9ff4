"""The names and labels of an attempt's objects on a cluster; pure, and the same for every caller.

A Job's pods are called ``<job>-<index>``, and that is also their host name: a DNS label (RFC 1123),
at most 63 characters.
"""

import hashlib
import re

from ml_assets.spec.cluster import MAX_NODES
from ml_assets.spec.training_program import World

MAX_ATTEMPT = 9999
APPLICATION = "ml-assets-training"
NAME_LABEL = "app.kubernetes.io/name"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "ml-assets"
PIPELINE_LABEL = "ml-assets.io/pipeline"
SESSION_LABEL = "ml-assets.io/session"
ATTEMPT_LABEL = "ml-assets.io/attempt"
VERB_LABEL = "ml-assets.io/verb"
PRICE_CLASS_LABEL = "ml-assets.io/price-class"
ASKED_LABEL = "ml-assets.io/asked"
"""On the Job of a training: what is asked for, whichever program does it (``asked_label``)."""
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""On a Job that Kueue admits: it is created suspended."""
REQUEST_ANNOTATION = "ml-assets.io/request"
"""The address of what a Job is asked, and so of the store that it works for."""

_LABEL_LENGTH = 63
_SLUG_LENGTH = _LABEL_LENGTH - len(f"-a{MAX_ATTEMPT}") - len(f"-{MAX_NODES}")
_SESSION = re.compile(r"([a-z][a-z0-9_]{0,62})-([a-z]{1,12})-([0-9a-f]{20})")


def slug_of(session: str, mark: str = "") -> str:
    """A session's name as a DNS label that leaves room for the attempt and a pod's index.

    Two sessions never share one: the digest in it is of the pipeline's whole name, too.

    Args:
        mark: of the store that it lies in, where that is ephemeral: the same work in another
            store is another Job.

    Raises:
        ValueError: it is no name of a session.
    """
    found = _SESSION.fullmatch(session)
    if found is None:
        raise ValueError(
            f"{session!r} is not the name of a session: <pipeline>-<verb>-<20 hexadecimal digits>"
        )
    pipeline, verb, digest = found[1], found[2], found[3]
    rest = f"-{verb}-{digest}" + (f"-{mark}" if mark else "")
    room = _SLUG_LENGTH - len(rest)
    kept = pipeline if len(pipeline) <= room else _marked(pipeline, room)
    return f"{kept}{rest}".replace("_", "-")


def job_name(session: str, attempt: int, mark: str = "") -> str:
    """The name of an attempt's Job and of its Service: it cannot be created twice.

    Args:
        mark: see ``slug_of``.

    Raises:
        ValueError: it is no name of a session, or no number of an attempt.
    """
    if not 1 <= attempt <= MAX_ATTEMPT:
        raise ValueError(
            f"{session}: an attempt is a number from 1 to {MAX_ATTEMPT}, not {attempt}"
        )
    return f"{slug_of(session, mark)}-a{attempt}"


def pod_host(job: str, index: int) -> str:
    """Return where a pod is found by the others, behind the Service of the Job's name."""
    return f"{job}-{index}.{job}"


def index_of(job: str, rank: int, world: World) -> int:
    """The index of the pod that a rank runs in.

    torchrun ranks the nodes by their addresses, as text: pod 10 comes before pod 2
    (``torch.distributed.elastic.rendezvous.dynamic_rendezvous``).
    """
    by_address = sorted(range(world.nodes), key=lambda index: pod_host(job, index))
    return by_address[rank // world.procs]


def asked_label(asked: str) -> str:
    """A digest of what is asked for as the value of a label."""
    return asked[:_LABEL_LENGTH]


def pipeline_label(pipeline: str) -> str:
    """A pipeline's name as the value of a label, which cannot end with ``_``."""
    return _marked(pipeline, _LABEL_LENGTH) if pipeline.endswith("_") else pipeline


def selector_of(session: str | None = None, mark: str = "") -> str:
    """Selects what a session has on the cluster; None: what every session has."""
    ours = f"{NAME_LABEL}={APPLICATION},{MANAGED_BY_LABEL}={MANAGED_BY}"
    return ours if session is None else f"{ours},{SESSION_LABEL}={slug_of(session, mark)}"


def labels(
    pipeline: str, session: str, attempt: int, verb: str, price_class: str, mark: str = ""
) -> dict[str, str]:
    """The labels of the Job, its pods and its Service alike."""
    return {
        NAME_LABEL: APPLICATION,
        MANAGED_BY_LABEL: MANAGED_BY,
        PIPELINE_LABEL: pipeline_label(pipeline),
        SESSION_LABEL: slug_of(session, mark),
        ATTEMPT_LABEL: str(attempt),
        VERB_LABEL: verb,
        PRICE_CLASS_LABEL: price_class,
    }


def _marked(name: str, length: int) -> str:
    """A name cut to fit, with a digest of the whole so that people do not take it for another."""
    mark = hashlib.sha256(name.encode()).hexdigest()[:6]
    return f"{name[: length - len(mark) - 1].rstrip('_')}-{mark}"
