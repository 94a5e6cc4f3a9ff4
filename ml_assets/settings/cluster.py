"""The settings of the training cluster: where its objects go, and what every pod gets. No secret is
here.

Names, labels and quantities follow Kubernetes' syntax, so that mistakes are found here.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from ml_assets.errors import SettingsError
from ml_assets.settings.addresses import s3_address, web_address
from ml_assets.settings.prices import PriceClass, price_class

_IMAGE = re.compile(
    r"(?:[a-zA-Z0-9.-]+(?::[0-9]{1,5})?/)?"  # registry
    r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
    r"@sha256:[0-9a-f]{64}"
)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True)
class Taint:
    """A mark of nodes that take only pods which tolerate it."""

    key: str
    value: str | None
    """None: any value."""
    effect: str


@dataclass(frozen=True)
class Cluster:
    """Says where Jobs are created and what their pods are made of."""

    objects: str
    """``s3://bucket/prefix``: the one store that pods and orchestrator share."""
    image: str
    """The image of the training program, by digest: what runs is what was tested."""
    namespace: str = "ml-assets"
    secret: str = "ml-assets-training"
    """Name of the Secret whose keys become environment variables of the pods."""
    pull_secret: str | None = None
    spot_selector: tuple[tuple[str, str], ...] = ()
    """Labels of the nodes that may be taken away."""
    spot_taints: tuple[Taint, ...] = ()
    """Taints of those nodes."""
    bought: PriceClass = "on-demand"
    """How the machines are that are not spot."""
    s3_endpoint: str | None = None
    """None: AWS's own."""
    s3_region: str | None = None


def read_cluster(environment: Mapping[str, str] | None = None) -> Cluster:
    """Read the settings of the Kubernetes launcher.

    Raises:
        SettingsError: one that every pod needs is missing, or a value cannot be used.
    """
    env = os.environ if environment is None else environment
    needed = {
        "ML_ASSETS_OBJECTS": "s3://bucket/prefix, the store that pods share with us",
        "ML_ASSETS_TRAINING_IMAGE": "the training image by digest, repository@sha256:...",
    }
    missing = [f"{name} ({what})" for name, what in needed.items() if not env.get(name)]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise SettingsError(
            f"Training on Kubernetes takes {' and '.join(missing)}, which {verb} not set."
            " Set it, or train here: ML_ASSETS_LAUNCHER=local."
        )
    _require_shared(env.get("ML_ASSETS_CHECKPOINTS", ""))
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or None
    return Cluster(
        objects=_objects(env["ML_ASSETS_OBJECTS"]),
        image=_image(env["ML_ASSETS_TRAINING_IMAGE"]),
        namespace=_namespace(env),
        secret=_secret(env, "ML_ASSETS_TRAINING_SECRET") or Cluster.secret,
        pull_secret=_secret(env, "ML_ASSETS_PULL_SECRET"),
        spot_selector=_selector(env.get("ML_ASSETS_SPOT_SELECTOR", "")),
        spot_taints=_taints(env.get("ML_ASSETS_SPOT_TOLERATION", "")),
        bought=price_class(False, env),
        s3_endpoint=_endpoint(env),
        s3_region=region,
    )


def _objects(value: str) -> str:
    if not value.startswith("s3://"):
        raise SettingsError(
            f"ML_ASSETS_OBJECTS is {value.split('@')[-1]!r}, which is not on S3: pods of a cluster"
            " would not find it. Set ML_ASSETS_OBJECTS=s3://bucket/prefix, or"
            " ML_ASSETS_LAUNCHER=local."
        )
    return s3_address("ML_ASSETS_OBJECTS", value)


def _require_shared(checkpoints: str) -> None:
    if checkpoints and not checkpoints.startswith("s3://"):
        raise SettingsError(
            f"ML_ASSETS_CHECKPOINTS is {checkpoints!r}, a folder of this machine: pods of a cluster"
            " would not find it. Set it to s3://bucket/prefix; or unset it, and they lie beside"
            " each session."
        )


def _image(value: str) -> str:
    if _IMAGE.fullmatch(value):
        return value
    raise SettingsError(
        f"ML_ASSETS_TRAINING_IMAGE is {value!r}; expected the image by its digest,"
        " repository@sha256:<64 hexadecimal digits>, and no tag: a tag can come to mean another"
        " image while a training resumes. `docker buildx imagetools inspect IMAGE:TAG` shows it."
    )


def _namespace(env: Mapping[str, str]) -> str:
    value = env.get("ML_ASSETS_NAMESPACE") or Cluster.namespace
    if is_dns_label(value):
        return value
    raise SettingsError(
        f"ML_ASSETS_NAMESPACE is {value!r}; expected the name of a Kubernetes namespace: lower-case"
        " letters, digits and '-', at most 63, such as ml-assets."
    )


def _secret(env: Mapping[str, str], name: str) -> str | None:
    value = env.get(name)
    if not value or is_dns_subdomain(value):
        return value or None
    # not shown: whoever mistakes the name for the secret itself would find it in a log
    raise SettingsError(
        f"{name} is not the name of a Secret; expected lower-case letters, digits, '-' and '.', "
        "such as ml-assets-training. The Secret's contents never go into a variable."
    )


def _selector(value: str) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for part in filter(None, re.split(r"[,\s]+", value)):
        key, equal, held = part.partition("=")
        if not equal or not is_label_key(key) or not is_label_value(held):
            raise SettingsError(
                f"ML_ASSETS_SPOT_SELECTOR has {part!r}; expected labels of the spot nodes, such as"
                " cloud.google.com/gke-spot=true."
            )
        found.append((key, held))
    return tuple(found)


def _taints(value: str) -> tuple[Taint, ...]:
    found: list[Taint] = []
    for part in filter(None, re.split(r"[,\s]+", value)):
        said, _, effect = part.rpartition(":")
        key, equal, held = said.partition("=")
        if effect not in _EFFECTS or not is_label_key(key) or not is_label_value(held):
            raise SettingsError(
                f"ML_ASSETS_SPOT_TOLERATION has {part!r}; expected taints of the spot nodes as"
                f" key=value:Effect or key:Effect, the effect one of {list(_EFFECTS)}, such as"
                " cloud.google.com/gke-spot=true:NoSchedule."
            )
        found.append(Taint(key, held if equal else None, effect))
    return tuple(found)


def _endpoint(env: Mapping[str, str]) -> str | None:
    """boto3's own variables, so that pods reach the store that we do."""
    name = "AWS_ENDPOINT_URL_S3" if env.get("AWS_ENDPOINT_URL_S3") else "AWS_ENDPOINT_URL"
    return web_address(env, name, "https://s3.example.org") if env.get(name) else None


_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,3})?"
_CPU = re.compile(rf"({_NUMBER})|([0-9]{{1,12}})m")
_BYTES = re.compile(rf"({_NUMBER})([kMGTP]|[KMGTP]i)?")
_MULTIPLES = {
    None: 1,
    **{unit: 1000**power for power, unit in enumerate("kMGTP", 1)},
    **{f"{unit}i": 1024**power for power, unit in enumerate("KMGTP", 1)},
}


def is_dns_label(text: str) -> bool:
    """The name of a namespace, a Service or a Kueue queue: RFC 1123, 63 signs at most."""
    return _DNS_LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """The name of a Secret or a priority class: labels with dots between, 253 signs at most."""
    return len(text) <= 253 and all(map(is_dns_label, text.split(".")))


def is_label_value(text: str) -> bool:
    """Return what a label holds; it may be empty."""
    return not text or _LABEL_NAME.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    """``name`` or ``domain.example/name``: of labels, taints and extended resources."""
    domain, slash, name = text.rpartition("/")
    return _LABEL_NAME.fullmatch(name) is not None and (not slash or is_dns_subdomain(domain))


def cores_of(quantity: str) -> Decimal | None:
    """Processor cores of ``2``, ``0.5`` or ``500m``; None: it is no such quantity, or nothing."""
    found = _CPU.fullmatch(quantity)
    if found is None:
        return None
    cores = Decimal(found[1]) if found[1] else Decimal(found[2]) / 1000
    return cores or None


def bytes_of(quantity: str) -> int | None:
    """Bytes of ``4Gi``, ``500M`` or a plain number; None: it is no such quantity, or nothing.

    Kubernetes takes ``400m`` for 0.4 bytes of memory; that is meant by nobody, and refused here.
    """
    found = _BYTES.fullmatch(quantity)
    return int(Decimal(found[1]) * _MULTIPLES[found[2]]) or None if found else None
