"""Actions: files under ``_lakefs_actions/`` whose hooks run around what happens to a branch.

A failing hook before an event refuses it; after an event it is only recorded. Webhooks are real
requests. A Lua hook is not run: tests register what it would do under its hook id.
Unlike lakeFS, the files are not cached for some seconds and later hooks do not run in the
background: the answer waits for them.
"""

import fnmatch
import json
import re
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import yaml

from ml_assets_tests.servers.lakefs import staging
from ml_assets_tests.servers.lakefs.history import Commit
from ml_assets_tests.servers.lakefs.object_store import ObjectStore
from ml_assets_tests.servers.lakefs.refusals import Missing, Refused
from ml_assets_tests.servers.lakefs.repository import Repository

FOLDER = "_lakefs_actions/"

_SUBJECTS = ("commit", "merge", "create-tag", "delete-tag", "create-branch", "delete-branch")
EVENTS = {f"{when}-{what}" for when in ("pre", "post") for what in _SUBJECTS}
EVENTS |= {"prepare-commit", "pre-revert", "post-revert", "pre-cherry-pick", "post-cherry-pick"}

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # hooks are near
_NAME = re.compile(r"\w[\w\-. ]+")
_HOOK = re.compile(r"[_a-zA-Z][-_a-zA-Z0-9]{1,255}")


class HookFailed(Exception):
    """A hook said no, and why."""


class Aborted(Refused):
    """A hook before the event refused it."""

    status = 412


@dataclass(frozen=True)
class Event:
    name: str
    repository: Repository
    branch: str = ""
    source: str = ""
    """The reference whose action files count."""
    tag: str = ""
    commit: Commit | None = None
    commit_id: str = ""
    merge_source: str = ""

    def shown(self, action: str, hook: str) -> dict[str, Any]:
        """What a hook is told: the body of a webhook's request."""
        told: dict[str, Any] = {
            "event_type": self.name,
            "event_time": _now(),
            "action_name": action,
            "hook_id": hook,
            "repository_id": self.repository.name,
            "branch_id": self.branch,
            "source_ref": self.source,
            "tag_id": self.tag,
            "commit_id": self.commit_id,
            "merge_source": self.merge_source,
        }
        if self.commit:
            told["commit_message"] = self.commit.message
            told["committer"] = self.commit.committer
            told["commit_metadata"] = dict(self.commit.metadata)
        return {key: value for key, value in told.items() if value}


@dataclass
class HookRun:
    id: str
    action: str
    hook: str
    start: str = ""
    end: str = ""
    failure: str = ""
    output: str = ""

    @property
    def status(self) -> str:
        if not self.start:
            return "skipped"
        return "failed" if self.failure else "completed"

    def shown(self) -> dict[str, Any]:
        shown = {
            "hook_run_id": self.id,
            "action": self.action,
            "hook_id": self.hook,
            "start_time": self.start or "0001-01-01T00:00:00Z",
            "status": self.status,
        }
        return {**shown, "end_time": self.end} if self.end else shown


@dataclass
class Run:
    """All hooks of one event."""

    id: str
    event: str
    branch: str
    commit_id: str
    start: str
    end: str = ""
    hooks: list[HookRun] = field(default_factory=list)

    def shown(self) -> dict[str, Any]:
        failed = any(hook.failure for hook in self.hooks)
        return {
            "run_id": self.id,
            "event_type": self.event,
            "branch": self.branch,
            "start_time": self.start,
            "end_time": self.end,
            "status": "failed" if failed else "completed",
            "commit_id": self.commit_id,
        }


class Hooks:
    """Runs hooks and remembers their runs, the latest first."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._runs: dict[str, list[Run]] = {}
        self._lock = threading.Lock()
        self.lua: dict[str, Callable[[Mapping[str, Any]], None]] = {}
        """What a Lua hook of this id does: it is given the event and raises ``HookFailed``."""

    def before(self, event: Event) -> str:
        """The id of the run.

        Raises:
            Aborted: a hook failed.
        """
        if event.repository.read_only:
            return ""
        run = Run(_run_id(), event.name, event.branch, event.commit_id, _now())
        try:
            self._run(event, run)
        except Refused as broken:  # an action file that is none
            broken.message = f"{event.name} hook aborted, run id '{run.id}': {broken.message}"
            raise
        failures = [hook.failure for hook in run.hooks if hook.failure]
        if failures:
            errors = "".join(f"\t* {failure}\n" for failure in failures)
            number = f"{len(failures)} error{'s' if len(failures) > 1 else ''} occurred:"
            raise Aborted(f"{event.name} hook aborted, run id '{run.id}': {number}\n{errors}\n")
        return run.id

    def after(self, event: Event, before: str = "") -> None:
        """Fails nothing. The run ``before`` the event learns which commit came of it."""
        for run in self.runs(event.repository.name):
            if run.id == before:
                run.commit_id = event.commit_id
        if event.repository.read_only:
            return
        run = Run(_run_id(), event.name, event.branch, event.commit_id, _now())
        try:
            self._run(event, run)
        except Refused:
            return

    def runs(self, repository: str) -> list[Run]:
        with self._lock:
            return list(self._runs.get(repository, ()))

    def run(self, repository: str, name: str) -> Run:
        for run in self.runs(repository):
            if run.id == name:
                return run
        raise Missing

    def _run(self, event: Event, run: Run) -> None:
        for number, action in enumerate(self._actions(event)):
            failed = False
            for place, hook in enumerate(action.get("hooks") or []):
                result = HookRun(f"{number:04d}_{place:04d}", action["name"], hook["id"])
                run.hooks.append(result)
                if _holds(str(hook.get("if") or "success()"), failed=failed):
                    self._call(hook, event, result)
                    failed = failed or bool(result.failure)
        run.end = _now()
        if run.hooks:
            with self._lock:
                self._runs.setdefault(event.repository.name, []).insert(0, run)

    def _actions(self, event: Event) -> list[dict[str, Any]]:
        """The valid action files at the event's source that name this event and branch."""
        tree = event.repository.tree(event.source)
        actions = []
        for path in sorted(path for path in tree if path.startswith(FOLDER)):
            if "/" in path.removeprefix(FOLDER):
                continue
            entry = staging.read(event.repository, event.source, path)
            actions.append(parse_action(path, self._store.get(entry.address)))
        seen = [action["name"] for action in actions]
        if len(set(seen)) < len(seen):
            raise Refused("action name already loaded: invalid action")
        return [action for action in actions if _matches(action["on"], event)]

    def _call(self, hook: Mapping[str, Any], event: Event, result: HookRun) -> None:
        result.start = _now()
        told = event.shown(result.action, result.hook)
        try:
            if hook["type"] == "webhook":
                result.output = _post(hook.get("properties") or {}, told)
            elif hook["id"] in self.lua:
                self.lua[hook["id"]](told)
            else:
                raise HookFailed(f"this server runs no {hook['type']} hooks")
        except HookFailed as failed:
            where = f"hook run id '{result.id}' failed on action '{result.action}'"
            result.failure = f"{where} hook '{result.hook}': action failed: {failed}"
            result.output += f"Error: action failed: {failed}\n"
        result.end = _now()


def parse_action(path: str, content: bytes) -> dict[str, Any]:
    """
    Raises:
        Refused: the file is no action; lakeFS answers 500 then.
    """
    try:
        action = yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise Refused(f"parsing file {path}: {error}") from error
    if not isinstance(action, dict):
        raise Refused(f"parsing file {path}: invalid action")
    action = {"on" if key is True else key: value for key, value in action.items()}
    problem = _problem(action)
    if problem:
        raise Refused(f"parsing file {path}: {problem}: invalid action")
    return action


def _problem(action: Mapping[str, Any]) -> str:
    if not _NAME.fullmatch(str(action.get("name") or "")):
        return "'name' is invalid" if action.get("name") else "'name' is required"
    if not isinstance(action.get("on"), dict) or not action["on"]:
        return "'on' is required"
    for event, where in action["on"].items():
        if event not in EVENTS:
            return f"event '{event}' is not supported"
        if (where or {}).get("branches") and str(event).endswith("-tag"):
            return "'branches' is not supported in tag event types"
    seen = set()
    for number, hook in enumerate(action.get("hooks") or []):
        if not _HOOK.fullmatch(str(hook.get("id") or "")):
            return f"hook[{number}] missing ID"
        if hook["id"] in seen:
            return f"hook[{number}] duplicate ID '{hook['id']}'"
        seen.add(hook["id"])
        if hook.get("type") not in {"webhook", "airflow", "lua"}:
            return f"hook[{number}] type '{hook['id']}' unknown"
    return ""


def _matches(on: Mapping[str, Any], event: Event) -> bool:
    if event.name not in on:
        return False
    patterns = (on[event.name] or {}).get("branches") or []
    return not patterns or any(fnmatch.fnmatchcase(event.branch, each) for each in patterns)


def _holds(condition: str, *, failed: bool) -> bool:
    known = {"success()": not failed, "failure()": failed, "true": True, "false": False}
    condition = condition.strip().removeprefix("${{").removesuffix("}}").strip()
    if condition not in known:
        raise Refused("hook 'if' expression should evaluate to a boolean")
    return known[condition]


def _post(properties: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    headers = {"Content-Type": "application/json", **(properties.get("headers") or {})}
    url = str(properties.get("url") or "")
    request = urllib.request.Request(url, json.dumps(told).encode(), headers, method="POST")
    told_output = f"Request:\nPOST {url}\nRequest Body:\n{json.dumps(told)}\n\n"
    try:
        with _DIRECT.open(request, timeout=60) as answer:
            return f"{told_output}Response:\nHTTP/1.1 {answer.status}\n"
    except urllib.error.HTTPError as error:
        error.close()
        raise HookFailed(f"webhook request failed (status code: {error.code})") from error
    except OSError as error:
        raise HookFailed(f"webhook request failed: {error}") from error


def _run_id() -> str:
    """Later runs sort first, as in lakeFS."""
    return f"{2**64 - time.time_ns():016x}{secrets.token_hex(2)}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
