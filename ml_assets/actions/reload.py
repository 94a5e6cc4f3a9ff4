"""Asks a running Dagster UI to read the definitions again: after a change, and where the process
that serves them died. Dagster's code server, which began it, does not begin another one.
"""

import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from ml_assets.settings import Settings

LOCATION = "ml_assets"
_SECONDS = 60.0
_EVERY, _LONGEST = 5.0, 300.0
"""Seconds between two looks; between two tries, where what was begun dies again."""
_MUTATION = """mutation Reload($location: String!) {
  reloadRepositoryLocation(repositoryLocationName: $location) { __typename }
}"""
_STATE = """{ workspaceOrError { ... on Workspace { locationEntries {
  locationOrLoadError { ... on PythonError { className } }
} } } }"""
_DIED = "DagsterUserCodeUnreachableError"
_NO_ANSWER = (OSError, ValueError, KeyError, TypeError)


def reload_ui(settings: Settings) -> str:
    """Let the UI of this machine show the definitions as they are now; what came of it."""
    url = settings.ui_url
    by_hand = "a running UI shows it after Deployment > Reload definitions"
    if urlsplit(url).hostname not in ("127.0.0.1", "localhost", "::1"):
        return f"{url} is not on this machine: {by_hand}"
    try:
        said = _reload(url)
    except _NO_ANSWER:
        return f"no UI answered at {url}: {by_hand}"
    return f"{url} shows it" if said == "WorkspaceLocationEntry" else f"{url}: {said}: {by_hand}"


@contextmanager
def definitions_served(url: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Begin the process that serves the definitions again when it dies, as long as the block lasts.

    Without it no sensor and no schedule would ever look again.

    Args:
        url: of the UI.
        tell: is handed a line each time.
    """
    ended = threading.Event()
    asked = (url, tell, ended)
    threading.Thread(target=_watch, args=asked, name="definitions", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _watch(url: str, tell: Callable[[str], None], ended: threading.Event) -> None:
    wait = _EVERY
    while not ended.wait(wait):
        try:
            if not _died(url):
                wait = _EVERY
                continue
            tell("The process that serves the definitions died; another one is begun.")
            wait = min(2 * wait, _LONGEST)
            _reload(url)
        except _NO_ANSWER:  # the UI begins, or ends: others tell that
            continue


def _died(url: str) -> bool:
    entries = _asked(url, _STATE)["workspaceOrError"]["locationEntries"]
    return any(one["locationOrLoadError"].get("className") == _DIED for one in entries)


def _reload(url: str) -> str:
    answer = _asked(url, _MUTATION, location=LOCATION)
    return answer["reloadRepositoryLocation"]["__typename"]


def _asked(url: str, query: str, **variables: str) -> Any:
    question = json.dumps({"query": query, "variables": variables}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/graphql", question, headers)
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
        return json.load(answer)["data"]
