"""The tests' lakeFS runs hooks around what happens, and remembers their runs."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from lakefs_client import models

from ml_assets_tests.servers.lakefs import HookFailed, LakeFSServer
from ml_assets_tests.servers.lakefs.clients import Demo


class Listener(ThreadingHTTPServer):
    """A webhook's far end: it notes what it is told and answers a status."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Told)
        self.told: list[dict] = []
        self.status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"


class Told(BaseHTTPRequestHandler):
    server: Listener

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.told.append(json.loads(self.rfile.read(length)))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def demo(server: LakeFSServer) -> Demo:
    return Demo(server)


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener() as listener:
        thread = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield listener
        listener.shutdown()
        thread.join()


def action(*events: str, url: str = "", branches: str = "", name: str = "check") -> str:
    """An action file with one webhook, or one Lua hook where there is not a URL."""
    where = f"\n    branches: [{branches}]" if branches else ""
    hook = f"webhook\n    properties:\n      url: {url}" if url else "lua"
    on = "".join(f"  {event}:{where}\n" for event in events)
    return f"name: {name}\non:\n{on}hooks:\n  - id: the_hook\n    type: {hook}\n"


def runs(demo: Demo, **more: str) -> dict[str, str]:
    found = demo.ask(demo.client.actions_api.list_repository_runs, **more)
    return {each.event_type: each.status for each in found.results}


def test_a_webhook_before_a_commit_is_told_of_it_and_may_stop_it(
    demo: Demo, listener: Listener
) -> None:
    listener.status = 400
    demo.put("main", {"_lakefs_actions/check.yaml": action("pre-commit", url=listener.url)})
    wish = models.CommitCreation("week 1", metadata={"rows": "3"})
    status, body = demo.refused(demo.client.commits_api.commit, "main", wish)
    assert (status, "webhook request failed (status code: 400)" in body) == (412, True)
    (told,) = listener.told
    assert (told["event_type"], told["branch_id"]) == ("pre-commit", "main")
    assert (told["commit_message"], told["commit_metadata"]) == ("week 1", {"rows": "3"})
    assert told["repository_id"] == demo.repo
    assert demo.log() == ["Repository created"]
    assert demo.paths("main") == ["_lakefs_actions/check.yaml"]  # still staged
    listener.status = 200
    demo.ask(demo.client.commits_api.commit, "main", wish)
    assert demo.log(amount=1) == ["week 1"]


def test_a_hook_before_a_merge_counts_as_the_source_has_it(demo: Demo, listener: Listener) -> None:
    listener.status = 500
    text = action("pre-merge", url=listener.url, branches="main")
    demo.branch("work")
    demo.branch("other")
    demo.commit("work", {"a": "1", "_lakefs_actions/check.yaml": text})
    merge = demo.client.refs_api.merge_into_branch
    assert demo.refused(merge, "work", "main")[0] == 412
    assert demo.seen("main") == {}
    assert listener.told[-1]["merge_source"] == "work"
    demo.merge("work", "other")  # not a branch that it names


def test_a_lua_hook_is_stood_in_for(demo: Demo) -> None:
    def validated(event: dict) -> None:
        if event.get("commit_metadata", {}).get("validated") != "true":
            raise HookFailed("not validated")

    demo.branch("work")
    demo.commit("work", {"a": "1", "_lakefs_actions/check.yaml": action("pre-merge")})
    demo.server.catalog.hooks.lua["the_hook"] = validated
    status, body = demo.refused(demo.client.refs_api.merge_into_branch, "work", "main")
    assert (status, "not validated" in body) == (412, True)
    demo.merge("work", "main", metadata={"validated": "true"})
    assert demo.read("main", "a") == "1"


def test_branches_and_tags_have_hooks_too(demo: Demo, listener: Listener) -> None:
    events = ("pre-create-tag", "pre-create-branch", "pre-delete-branch", "post-create-tag")
    text = action(*events, url=listener.url)
    demo.commit("main", {"_lakefs_actions/check.yaml": text})
    demo.branch("work")
    demo.tag("v1", "main")
    demo.ask(demo.client.branches_api.delete_branch, "work")
    told = [each["event_type"] for each in listener.told]
    assert told == ["pre-create-branch", "pre-create-tag", "post-create-tag", "pre-delete-branch"]
    listener.status = 403
    tag = models.TagCreation("v2", "main")
    assert demo.refused(demo.client.tags_api.create_tag, tag)[0] == 412
    assert demo.refused(demo.client.tags_api.get_tag, "v2")[0] == 404


def test_runs_are_listed_the_latest_first_with_their_output(demo: Demo, listener: Listener) -> None:
    text = action("pre-commit", "post-commit", url=listener.url)
    made = demo.commit("main", {"_lakefs_actions/check.yaml": text})
    api = demo.client.actions_api
    found = demo.ask(api.list_repository_runs).results
    assert [each.event_type for each in found] == ["post-commit", "pre-commit"]
    assert [each.commit_id for each in found] == [made, made]
    assert runs(demo, branch="main") == {"pre-commit": "completed", "post-commit": "completed"}
    assert runs(demo, commit="0" * 64) == {}
    assert demo.ask(api.get_run, found[0].run_id).status == "completed"
    (hook,) = demo.ask(api.list_run_hooks, found[0].run_id).results
    assert (hook.hook_id, hook.action, hook.status) == ("the_hook", "check", "completed")
    call = api.get_run_hook_output
    output = demo.ask(call, found[0].run_id, hook.hook_run_id, _preload_content=False)
    assert listener.url in output.data.decode()
    assert demo.refused(api.get_run, "unknown")[0] == 404


def test_a_hook_after_the_event_cannot_undo_it(demo: Demo, listener: Listener) -> None:
    listener.status = 500
    text = action("post-commit", url=listener.url)
    made = demo.commit("main", {"_lakefs_actions/check.yaml": text})
    assert demo.head() == made
    assert runs(demo) == {"post-commit": "failed"}


def test_a_webhook_that_nobody_hears_stops_the_commit(demo: Demo) -> None:
    text = action("pre-commit", url="http://127.0.0.1:9/")
    demo.put("main", {"_lakefs_actions/check.yaml": text})
    wish = models.CommitCreation("m")
    assert demo.refused(demo.client.commits_api.commit, "main", wish)[0] == 412


def test_later_hooks_of_an_action_follow_their_condition(demo: Demo, listener: Listener) -> None:
    listener.status = 500
    hook = f"    type: webhook\n    properties: {{url: '{listener.url}'}}\n"
    text = (
        "name: three\non: {pre-commit: }\nhooks:\n"
        f"  - id: first\n{hook}  - id: only_success\n{hook}"
        f"  - id: on_failure\n    if: failure()\n{hook}"
    )
    demo.put("main", {"_lakefs_actions/three.yaml": text})
    wish = models.CommitCreation("m")
    assert demo.refused(demo.client.commits_api.commit, "main", wish)[0] == 412
    assert [each["hook_id"] for each in listener.told] == ["first", "on_failure"]
    (run,) = demo.ask(demo.client.actions_api.list_repository_runs).results
    hooks = demo.http("GET", f"/actions/runs/{run.run_id}/hooks").json()["results"]
    # 'skipped' is not in the published API: neither Python client takes it
    assert [each["status"] for each in hooks] == ["failed", "skipped", "failed"]


@pytest.mark.parametrize(
    "text",
    [
        "not: [an, action",
        "name: x\non: {pre-commit: }\nhooks: [{id: h1, type: telepathy}]",
        "name: xy\non: {on-monday: }\nhooks: []",
        "name: xy\nhooks: []",
        "name: xy\non: {pre-create-tag: {branches: [main]}}",
        "name: xy\non: {pre-commit: }\nhooks: [{id: hook, type: lua}, {id: hook, type: lua}]",
    ],
)
def test_a_broken_action_file_stops_the_commit_as_a_server_error(demo: Demo, text: str) -> None:
    demo.put("main", {"_lakefs_actions/broken.yaml": text})
    wish = models.CommitCreation("m")
    status, body = demo.refused(demo.client.commits_api.commit, "main", wish)
    assert (status, "parsing file _lakefs_actions/broken.yaml" in body) == (500, True)
