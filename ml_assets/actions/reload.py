"""Asks a running Dagster UI to read the definitions again."""

import json
import urllib.request
from urllib.parse import urlsplit

from ml_assets.settings import Settings

LOCATION = "ml_assets"
_SECONDS = 60.0
_MUTATION = """mutation Reload($location: String!) {
  reloadRepositoryLocation(repositoryLocationName: $location) { __typename }
}"""


def reload_ui(settings: Settings) -> str:
    """Let the UI of this machine show the definitions as they are now; what came of it."""
    url = settings.ui_url
    by_hand = "a running UI shows it after Deployment > Reload definitions"
    if urlsplit(url).hostname not in ("127.0.0.1", "localhost", "::1"):
        return f"{url} is not on this machine: {by_hand}"
    question = {"query": _MUTATION, "variables": {"location": LOCATION}}
    request = urllib.request.Request(
        f"{url}/graphql",
        json.dumps(question).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            said = json.load(answer)["data"]["reloadRepositoryLocation"]["__typename"]
    except (OSError, ValueError, KeyError, TypeError):
        return f"no UI answered at {url}: {by_hand}"
    return f"{url} shows it" if said == "WorkspaceLocationEntry" else f"{url}: {said}: {by_hand}"
