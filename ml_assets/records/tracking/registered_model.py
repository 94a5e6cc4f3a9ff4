"""A pipeline's registered model in MLflow: its versions, and whose ledger its aliases show.

Several homes may use one tracking server. The first ledger that moves an alias owns the registered
model, by a tag: a trial on a laptop does not move what the team's server shows in production.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel

MODEL_TAG = "ml_assets.model"
STAGE_TAG = "ml_assets.stage"
"""The tag of a version: where its model is; archived, when it left its last stage."""
RECALLED_TAG = "ml_assets.recalled"
"""The tag of a version whose model is recalled: the recall's id and reason. It has no alias."""
STAGES = ("staging", "canary", "production")
LEDGER_TAG = "ml_assets.ledger"
"""The tag of a registered model: the digest of the first line of the ledger that it shows."""
HOME_TAG = "ml_assets.home"
"""The state folder of that ledger, for people."""


def opened(client: "MlflowClient", name: str) -> "RegisteredModel":
    """The registered model, made where it is missing."""
    from mlflow.exceptions import MlflowException

    try:
        return client.get_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
    try:
        return client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":  # somebody on another machine was first
            raise
    return client.get_registered_model(name)


def claim(client: "MlflowClient", name: str, ledger: str, home: Path) -> str:
    """Make a registered model that is nobody's this ledger's; else return whose it is."""
    found = opened(client, name)
    if LEDGER_TAG not in found.tags:
        client.set_registered_model_tag(name, HOME_TAG, str(home.absolute()))
        client.set_registered_model_tag(name, LEDGER_TAG, ledger)
    return told_by_another(found, ledger)


def told_by_another(found: "RegisteredModel", ledger: str) -> str:
    """Return whose ledger a registered model shows, and how to part them; empty: this one's, or
    nobody's."""
    if found.tags.get(LEDGER_TAG, ledger) == ledger:
        return ""
    return (
        f"MLflow's registered model {found.name} shows the ledger of"
        f" {found.tags.get(HOME_TAG, 'another home')} and stays as it is: give one of the two homes"
        " another MLFLOW_TRACKING_URI or its pipeline another name, or, where that home is gone,"
        f" delete the model's tag {LEDGER_TAG}"
    )


def versions_of(client: "MlflowClient", name: str, model: str) -> "Sequence[ModelVersion]":
    """The versions that point to a model, oldest first."""
    found = client.search_model_versions(f"name = '{name}' and tags.`{MODEL_TAG}` = '{model}'")
    return sorted(found, key=lambda version: int(version.version))


def tagged(client: "MlflowClient", name: str) -> set[str]:
    """The versions that are tagged as in a stage: a kill may leave one that is there no more."""
    asked = [f"name = '{name}' and tags.`{STAGE_TAG}` = '{stage}'" for stage in STAGES]
    return {str(one.version) for each in asked for one in client.search_model_versions(each)}


def mark_recalled(client: "MlflowClient", name: str, recalled: Mapping[str, str]) -> None:
    """Tag the versions of recalled models, and take the tag off those that may be used again.

    Args:
        recalled: the digest of a model -> its recall's id and reason.
    """
    marked = f"name = '{name}' and tags.`{RECALLED_TAG}` LIKE '%'"
    for version in client.search_model_versions(f"name = '{name}'" if recalled else marked):
        wanted = recalled.get(version.tags.get(MODEL_TAG, ""))
        if wanted is None and RECALLED_TAG in version.tags:
            client.delete_model_version_tag(name, version.version, RECALLED_TAG)
        elif wanted is not None and version.tags.get(RECALLED_TAG) != wanted:
            client.set_model_version_tag(name, version.version, RECALLED_TAG, wanted)
