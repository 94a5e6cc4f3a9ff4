"""The text of a model card: a pure function of what is signed and of the model's own manifest."""

from collections.abc import Iterable

from ml_assets.errors import counted
from ml_assets.reports.wording import plain_markdown as _plain
from ml_assets.spec.certificate import Certificate
from ml_assets.spec.training_program import ModelManifest
from ml_assets.spec.training_program.identity import Node

_SHOWN = 40
"""Features that are listed by name."""


def model_card(certificate: Certificate, manifest: ModelManifest) -> str:
    """Markdown; every name in it is escaped."""
    lines = [
        f"# {_plain(certificate.pipeline)}, model {certificate.model[:12]}",
        "",
        *_what_it_is(manifest),
        "",
        "## What was decided",
        "",
        f"{'Passed' if certificate.passed else 'Refused'}: {_plain(certificate.reason)}"
        f" ({certificate.time:%Y-%m-%d %H:%M} UTC, ledger line {certificate.line.seq}, answered for"
        f" by {_plain(certificate.author)}).",
        "",
        *_overridden(certificate),
        "| gate | passed | value | bound | why |",
        "|---|---|---|---|---|",
        *(
            f"| {_plain(gate.name)} | {'yes' if gate.passed else 'no'} | {_number(gate.value)}"
            f" | {_number(gate.bound)} | {_plain(gate.reason)} |"
            for gate in certificate.gates
        ),
        "",
        "## What it was made from",
        "",
        *_made_from(certificate),
        "",
        "## What this proves",
        "",
        "`ml-assets release verify FOLDER --key PUBLIC_KEY`"
        " holds every file here to the certificate, and the certificate to the key, without a"
        " store or a network. Without a key nothing says who decided. It says what was decided"
        " on which bytes; it does not say that the gates were wise or that the data was true.",
        "",
    ]
    return "\n".join(lines)


def _overridden(certificate: Certificate) -> list[str]:
    word = certificate.override
    if word is None:
        return []
    return [f"**Overridden** by {_plain(word.author)}: {_plain(word.reason)}", ""]


def _what_it_is(manifest: ModelManifest) -> list[str]:
    columns = manifest.preprocessing
    names = [c.name for c in (*columns.numeric, *columns.categorical)]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    predicts = f" of {_listed(manifest.classes)}" if manifest.classes else ""
    return [
        f"A model of the family {manifest.model.family}, for a {manifest.task} label{predicts}."
        " Weights:"
        f" {_plain(manifest.weights.path)} ({manifest.weights.size:,} bytes, SHA-256"
        f" {manifest.weights.sha256}). `model.json` has its configuration and its preprocessing.",
        "",
        f"It reads {counted(len(names), 'feature')}: {_listed(names[:_SHOWN])}{more}.",
    ]


def _made_from(certificate: Certificate) -> list[str]:
    found = certificate.provenance
    if found is None:
        return ["Nobody said."]
    said = found.registered
    rows = [
        *(
            [
                (
                    "made elsewhere",
                    f"version {said.version} from {said.uri}: judged here, with the rest",
                )
            ]
            if said
            else []
        ),
        *(
            [(f"claimed {name}", _number(value)) for name, value in said.claims.items()]
            if said
            else []
        ),
        ("training set", found.training_set),
        *(
            (f"{i.key} {i.partition or ''}".strip(), f"{i.version} at commit {i.commit}")
            for i in found.inputs
        ),
        ("weights that training began with", found.init or "fresh ones"),
        *([("model that taught it", found.teacher)] if found.teacher else []),
        ("training program", str(found.program)),
        *((f"node {i} of the training", _node(node)) for i, node in enumerate(found.nodes)),
        ("sources", found.sources),
        ("git commit", found.git_sha or "none"),
        ("requirements.lock", found.lock or "none"),
        ("settings", found.settings),
        ("spec", found.spec),
        ("evaluation report", certificate.report),
        ("gate policy", certificate.policy),
        ("champion it was compared with", certificate.champion or "none"),
    ]
    return [
        "| | digest |",
        "|---|---|",
        *(f"| {_plain(a)} | {_plain(b)} |" for a, b in rows),
    ]


def _node(node: Node) -> str:
    told = [*(f"{name} {version}" for name, version in node.versions.items())]
    told += [*node.machine.devices]
    if node.place:
        told += [node.place.image, node.place.node_type or ""]
    return ", ".join(filter(None, told))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(_plain(name) for name in names)
