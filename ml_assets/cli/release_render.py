"""ml-assets release render: a release as objects of a serving platform."""

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from ml_assets.actions.render_release import Platform

_UNHELD = (
    "No key was given to verify the folder with (--key PUBLIC, or ML_ASSETS_TRUSTED_KEYS): "
    "anybody could have written what is rendered here, including the model to roll back to."
)


@click.command
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--for", "platform", type=click.Choice(["kserve", "argo"]), required=True)
@click.option(
    "--storage", required=True, metavar="URI", help="The location that holds all exported folders."
)
@click.option(
    "--crd",
    type=click.File(),
    help="kserve: the cluster's definition of InferenceService, which determines the "
    "form of the canary.",
)
@click.option("--key", metavar="PUBLIC", help="The trusted public key, as for `release verify`.")
@click.option("--image", default="", help="argo: the server's image.")
@click.option(
    "--prometheus",
    default="http://prometheus.monitoring:9090",
    show_default=True,
    help="argo: the Prometheus that the analysis queries.",
)
def render(
    folder: Path,
    platform: "Platform",
    storage: str,
    crd: TextIO | None,
    key: str | None,
    image: str,
    prometheus: str,
) -> None:
    """Print an exported release as objects of a serving platform.

    FOLDER is the output of `ml-assets release export`. The rollout is the one in its spec
    (`release.rollout`).

    \b
      kubectl get crd inferenceservices.serving.kserve.io -o yaml > crd.yaml
      ml-assets release render out --for kserve --storage s3://models --crd crd.yaml
    """
    from ml_assets.actions.render_release import ServingPlatform, read_handover, rendered
    from ml_assets.actions.verify import trusted_keys

    if platform == "argo" and not image:
        raise click.UsageError("--for argo needs the --image of the server.")
    place = ServingPlatform(storage, image, prometheus)
    told = crd.read() if crd else None
    trusted = trusted_keys(key)
    document = read_handover(folder, trusted)
    if not trusted:
        click.echo(_UNHELD, err=True)
    print(rendered(document, platform, place, told), end="")
