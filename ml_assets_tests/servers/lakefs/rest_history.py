"""REST: commits, logs, diffs, merges, reverts, cherry-picks, and the runs of hooks."""

from datetime import datetime
from typing import Any

from ml_assets_tests.servers.lakefs import commits, staging
from ml_assets_tests.servers.lakefs.catalog import Catalog
from ml_assets_tests.servers.lakefs.commits import Merging, Wish
from ml_assets_tests.servers.lakefs.exchange import Request, Response, as_json
from ml_assets_tests.servers.lakefs.history import Commit, log, merge_base
from ml_assets_tests.servers.lakefs.listing import DEFAULT_PAGE, folded, shown
from ml_assets_tests.servers.lakefs.refusals import Invalid, Missing
from ml_assets_tests.servers.lakefs.repository import Repository
from ml_assets_tests.servers.lakefs.rest_routes import empty, optional, route
from ml_assets_tests.servers.lakefs.trees import Change, comparison, differences

_ONE = "/repositories/{repository}"
_BRANCH = _ONE + "/branches/{branch}"
_RUNS = _ONE + "/actions/runs"


@route("POST", _BRANCH + "/commits")
def commit(catalog: Catalog, request: Request, repository: Repository, branch: str) -> Response:
    wish = _wish(catalog, request.json(message=str))
    return as_json(commits.commit(repository, catalog.hooks, branch, wish).shown(), 201)


@route("GET", _ONE + "/commits/{reference}")
def get_commit(
    catalog: Catalog, request: Request, repository: Repository, reference: str
) -> Response:
    return as_json(repository.commit(reference).shown())


@route("GET", _ONE + "/refs/{reference}/commits")
def log_commits(
    catalog: Catalog, request: Request, repository: Repository, reference: str
) -> Response:
    found = _chosen(repository, request, _walk(repository, request, reference))
    amount = request.number("amount", DEFAULT_PAGE)
    answer = shown(found, amount, Commit.shown, lambda each: each.id)
    if request.flag("limit"):  # so many, and no word on more
        answer["pagination"] |= {"has_more": False, "next_offset": ""}
    return as_json(answer)


@route("POST", _ONE + "/refs/{source}/merge/{branch}")
def merge(
    catalog: Catalog, request: Request, repository: Repository, source: str, branch: str
) -> Response:
    body = request.json()
    how = Merging(optional(body, "strategy", ""), optional(body, "squash_merge", False))
    wish = _wish(catalog, body)
    made = commits.merge(repository, catalog.hooks, source, branch, wish, how)
    return as_json({"reference": made.id})


@route("GET", _ONE + "/refs/{source}/merge/{destination}")
def find_merge_base(
    catalog: Catalog, request: Request, repository: Repository, source: str, destination: str
) -> Response:
    ours, theirs = repository.commit(destination).id, repository.commit(source).id
    base = merge_base(repository.commits, theirs, ours).id
    return as_json(
        {"source_commit_id": theirs, "destination_commit_id": ours, "base_commit_id": base}
    )


@route("POST", _BRANCH + "/revert")
def revert(catalog: Catalog, request: Request, repository: Repository, branch: str) -> Response:
    body = request.json(ref=str, parent_number=int)
    if body["parent_number"] < 0:
        raise Invalid("argument parentNumber: invalid value: validation error")
    wish = _override(_wish(catalog, body), body)
    commits.revert(repository, catalog.hooks, branch, body["ref"], body["parent_number"], wish)
    return empty()


@route("POST", _BRANCH + "/cherry-pick")
def cherry_pick(
    catalog: Catalog, request: Request, repository: Repository, branch: str
) -> Response:
    body = request.json(ref=str)
    parent = body.get("parent_number")
    if parent is not None and parent <= 0:
        raise Invalid("argument parentNumber: value should be greater than 0: invalid value")
    wish = _override(_wish(catalog, body), body)
    made = commits.cherry_pick(repository, catalog.hooks, branch, body["ref"], parent, wish)
    return as_json(made.shown(), 201)


# --- differences ----------------------------------------------------------------------------------


@route("GET", _BRANCH + "/diff")
def diff_branch(
    catalog: Catalog, request: Request, repository: Repository, branch: str
) -> Response:
    return as_json(_diff(request, staging.uncommitted(repository, branch)))


@route("GET", _ONE + "/refs/{left}/diff/{right}")
def diff_refs(
    catalog: Catalog, request: Request, repository: Repository, left: str, right: str
) -> Response:
    ours = repository.commit(left)
    if request.one("type") == "two_dot":  # whose right side may be what is staged
        after = repository.tree(right) if right.endswith("$") else repository.commit(right).tree
        return as_json(_diff(request, list(differences(ours.tree, after))))
    theirs = repository.commit(right)
    base = merge_base(repository.commits, theirs.id, ours.id)
    return as_json(_diff(request, list(comparison(ours.tree, theirs.tree, base.tree))))


def _diff(request: Request, changes: list[Change]) -> dict[str, Any]:
    by_path = {change.path: change for change in changes}
    prefix, delimiter, after = (request.one(name) for name in ("prefix", "delimiter", "after"))
    right = request.flag("include_right_stats")

    def show(item: tuple[str, bool]) -> dict[str, Any]:
        path, is_prefix = item
        if is_prefix:
            return {"path": path, "type": "prefix_changed", "path_type": "common_prefix"}
        return _change(by_path[path], right=right)

    items = folded(by_path, prefix, delimiter, after)
    return shown(items, request.number("amount", DEFAULT_PAGE), show, lambda item: item[0])


def _change(change: Change, *, right: bool) -> dict[str, Any]:
    seen = {
        "path": change.path,
        "type": change.kind,
        "path_type": "object",
        "size_bytes": change.size,
    }
    if right and change.entry:
        seen["right"] = {
            "checksum": change.entry.checksum,
            "content_type": change.entry.content_type,
            "mtime": change.entry.modified,
            "metadata": dict(change.entry.metadata),
        }
    return seen


# --- logs -----------------------------------------------------------------------------------------


def _walk(repository: Repository, request: Request, reference: str) -> list[Commit]:
    """From the reference back, with what ends or starts the walk."""
    start = repository.commit(reference).id
    found = list(log(repository.commits, start, first_parent=request.flag("first_parent")))
    since = request.one("since")
    if since:
        oldest = datetime.fromisoformat(since.replace("Z", "+00:00")).timestamp()
        found = [each for each in found if each.created >= oldest * 1_000_000_000]
    if request.one("after"):
        last = repository.resolve(request.one("after")).commit
        places = [place for place, each in enumerate(found) if each.id == last]
        found = found[places[0] + 1 :] if places else []
    return found


def _chosen(repository: Repository, request: Request, walk: list[Commit]) -> list[Commit]:
    """Those that touched what is asked for, up to and with the one to stop at."""
    objects, prefixes = request.all("objects"), request.all("prefixes")
    if objects or prefixes:
        walk = [each for each in walk if _touches(repository, each, objects, prefixes)]
    stop = request.one("stop_at") and repository.resolve(request.one("stop_at")).commit
    places = [place for place, each in enumerate(walk) if each.id == stop]
    return walk[: places[0] + 1] if places else walk


def _touches(repository: Repository, each: Commit, objects: list[str], prefixes: list[str]) -> bool:
    """Whether a commit changed one of the paths; merges are passed over, as lakeFS does."""
    if len(each.parents) != 1:
        return False
    before = repository.commits[each.parents[0]].tree
    return any(
        change.path in objects or change.path.startswith(tuple(prefixes))
        for change in differences(before, each.tree)
    )


# --- hooks ----------------------------------------------------------------------------------------


@route("GET", _RUNS)
def list_runs(catalog: Catalog, request: Request, repository: Repository) -> Response:
    branch, by_commit = request.one("branch"), request.one("commit")
    if branch and by_commit:
        raise Invalid("parameters conflict")
    runs = [
        run
        for run in catalog.hooks.runs(repository.name)
        if (not branch or run.branch == branch)
        and (not by_commit or run.commit_id == by_commit)
        and run.id > request.one("after")
    ]
    amount = request.number("amount", DEFAULT_PAGE)
    return as_json(shown(runs, amount, lambda run: run.shown(), lambda run: run.id))


@route("GET", _RUNS + "/{run}")
def get_run(catalog: Catalog, request: Request, repository: Repository, run: str) -> Response:
    return as_json(catalog.hooks.run(repository.name, run).shown())


@route("GET", _RUNS + "/{run}/hooks")
def list_run_hooks(
    catalog: Catalog, request: Request, repository: Repository, run: str
) -> Response:
    hooks = catalog.hooks.run(repository.name, run).hooks
    chosen = [hook for hook in hooks if hook.id > request.one("after")]
    amount = request.number("amount", DEFAULT_PAGE)
    return as_json(shown(chosen, amount, lambda hook: hook.shown(), lambda hook: hook.id))


@route("GET", _RUNS + "/{run}/hooks/{hook}/output")
def get_run_hook_output(
    catalog: Catalog, request: Request, repository: Repository, run: str, hook: str
) -> Response:
    for known in catalog.hooks.run(repository.name, run).hooks:
        if known.id == hook:
            headers = {
                "Content-Type": "application/octet-stream",
                "Content-Disposition": f"attachment; filename={hook}.log",
            }
            return Response(200, known.output.encode(), headers)
    raise Missing


# --- bodies ---------------------------------------------------------------------------------------


def _wish(catalog: Catalog, body: dict[str, Any]) -> Wish:
    metadata = optional(body, "metadata", {})
    if not all(isinstance(value, str) for value in metadata.values()):
        raise Invalid("request body has an error: metadata: value must be a string")
    return Wish(
        catalog.setup.user,
        optional(body, "message", ""),
        metadata,
        optional(body, "allow_empty", False),
        optional(body, "force", False),
        optional(body, "date", None),
    )


def _override(wish: Wish, body: dict[str, Any]) -> Wish:
    """The words that ``commit_overrides`` puts in place of the commit's own."""
    said = optional(body, "commit_overrides", {})
    message, metadata = optional(said, "message", ""), optional(said, "metadata", {})
    return Wish(wish.committer, message, metadata, wish.allow_empty, wish.force)
