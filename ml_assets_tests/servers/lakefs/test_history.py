"""The tests' lakeFS keeps history as lakeFS does: commits, merges, logs, differences, races."""

import threading
from concurrent.futures import ThreadPoolExecutor

import lakefs_sdk
import pytest
from lakefs_client import models

from ml_assets_tests.servers.lakefs import Fault, LakeFSServer
from ml_assets_tests.servers.lakefs.clients import Demo, rest_client, sdk_client


@pytest.fixture
def demo(server: LakeFSServer) -> Demo:
    server.faults.clear()
    return Demo(server)


# --- commits --------------------------------------------------------------------------------------


def test_a_commit_takes_all_that_is_staged_whoever_staged_it(demo: Demo) -> None:
    demo.put("main", {"mine": "1"})
    other = rest_client(demo.server)
    demo.put("main", {"theirs": "half"})
    wish = models.CommitCreation("mine only", metadata={"run_key": "k"})
    made = other.commits_api.commit(demo.repo, "main", wish)
    assert demo.seen(made.id) == {"mine": "1", "theirs": "half"}
    assert (made.message, made.metadata, made.committer) == (
        "mine only",
        {"run_key": "k"},
        "admin",
    )
    assert len(made.id) == 64
    assert demo.ask(demo.client.commits_api.get_commit, made.id).to_dict() == made.to_dict()


def test_nothing_staged_is_nothing_to_commit_unless_asked_for(demo: Demo) -> None:
    commit = demo.client.commits_api.commit
    empty = models.CommitCreation("empty")
    status, body = demo.refused(commit, "main", empty)
    assert (status, "no changes" in body) == (400, True)
    demo.commit("main", {"a": "1"})
    demo.put("main", {"a": "1"})  # the same again is no change
    assert demo.refused(commit, "main", empty)[0] == 400
    demo.put("main", {"b": "1"})
    demo.ask(demo.client.objects_api.delete_object, "main", "b")  # came and went
    assert demo.refused(commit, "main", empty)[0] == 400
    made = demo.commit("main", allow_empty=True)
    assert demo.head() == made


def test_metadata_is_text(demo: Demo) -> None:
    from lakefs_client.exceptions import ApiTypeError

    with pytest.raises(ApiTypeError):
        models.CommitCreation("m", metadata={"rows": 3})


def test_a_commit_may_carry_its_own_date(demo: Demo) -> None:
    demo.put("main", {"a": "1"})
    wish = models.CommitCreation("old", date=1_000_000_000)
    made = demo.ask(demo.client.commits_api.commit, "main", wish)
    assert made.creation_date == 1_000_000_000


def test_equal_content_has_an_equal_meta_range(demo: Demo) -> None:
    demo.branch("one")
    demo.branch("two")
    get = demo.client.commits_api.get_commit
    one = demo.ask(get, demo.commit("one", {"a": "1", "b": "2"}))
    two = demo.ask(get, demo.commit("two", {"b": "2", "a": "1"}))
    assert one.meta_range_id == two.meta_range_id
    assert one.id != two.id


def test_uncommitted_changes_are_listed_and_reset(demo: Demo) -> None:
    demo.commit("main", {"a": "1", "b": "1", "d/1": "1"})
    demo.put("main", {"a": "2", "c": "1", "d/2": "1"})
    demo.ask(demo.client.objects_api.delete_object, "main", "b")
    changed = {"a": "changed", "b": "removed", "c": "added", "d/2": "added"}
    diff, reset = demo.client.branches_api.diff_branch, demo.client.branches_api.reset_branch

    def uncommitted(**more: str) -> dict[str, str]:
        return {each.path: each.type for each in demo.ask(diff, "main", **more).results}

    assert uncommitted() == changed
    assert uncommitted(delimiter="/")["d/"] == "prefix_changed"
    demo.ask(reset, "main", models.ResetCreation("object", path="a"))
    demo.ask(reset, "main", models.ResetCreation("common_prefix", path="d/"))
    assert uncommitted() == {"b": "removed", "c": "added"}
    demo.ask(reset, "main", models.ResetCreation("reset"))
    assert uncommitted() == {}
    assert demo.seen("main") == {"a": "1", "b": "1", "d/1": "1"}


# --- merges ---------------------------------------------------------------------------------------


def test_a_merge_takes_each_path_from_the_side_that_changed_it(demo: Demo) -> None:
    base = {"theirs": "0", "ours": "0", "gone": "0", "both": "0", "gone twice": "0"}
    demo.commit("main", base)
    demo.branch("work")
    delete = demo.client.objects_api.delete_object
    for branch in ("work", "main"):
        demo.ask(delete, branch, "gone twice")
    demo.ask(delete, "work", "gone")
    side = demo.commit("work", {"theirs": "1", "both": "same", "new": "1"})
    head = demo.commit("main", {"ours": "1", "both": "same"})
    merged = demo.merge("work", "main", message="join", metadata={"k": "v"})
    assert demo.seen("main") == {"theirs": "1", "ours": "1", "both": "same", "new": "1"}
    commit = demo.ask(demo.client.commits_api.get_commit, merged)
    assert commit.parents == [head, side]
    assert commit.message == "join"
    assert commit.metadata == {"k": "v", ".lakefs.merge.strategy": "default"}


def test_both_sides_changed_is_a_conflict_and_nothing_happens(demo: Demo) -> None:
    demo.commit("main", {"a": "0", "b": "0"})
    demo.branch("work")
    demo.commit("work", {"a": "1"})
    head = demo.commit("main", {"a": "2"})
    merge = demo.client.refs_api.merge_into_branch
    status, body = demo.refused(merge, "work", "main")
    assert (status, body) == (409, '{"reference": ""}')  # a MergeResult, no words
    assert demo.head() == head
    assert demo.diff("main", "work") == {"a": "conflict"}
    demo.branch("ours", "main")
    demo.merge("work", "ours", strategy="dest-wins")
    demo.merge("work", "main", strategy="source-wins")
    assert (demo.read("ours", "a"), demo.read("main", "a")) == ("2", "1")


def test_removed_here_and_changed_there_is_a_conflict(demo: Demo) -> None:
    demo.commit("main", {"a": "0", "b": "0"})
    demo.branch("work")
    demo.ask(demo.client.objects_api.delete_object, "work", "a")
    demo.commit("work")
    demo.commit("main", {"a": "1"})
    merge = demo.client.refs_api.merge_into_branch
    assert demo.refused(merge, "work", "main")[0] == 409
    assert demo.refused(merge, "main", "work")[0] == 409


def test_a_merge_needs_a_clean_destination_and_something_new(demo: Demo) -> None:
    demo.branch("work")
    demo.commit("work", {"a": "1"})
    demo.put("main", {"half": "done"})
    merge = demo.client.refs_api.merge_into_branch
    status, body = demo.refused(merge, "work", "main")
    assert (status, "uncommitted changes (dirty branch)" in body) == (400, True)
    demo.ask(demo.client.branches_api.reset_branch, "main", models.ResetCreation("reset"))
    demo.put("work", {"staged": "not merged"})
    demo.merge("work", "main")
    assert demo.seen("main") == {"a": "1"}
    status, body = demo.refused(merge, "work", "main")
    assert (status, "no changes" in body) == (400, True)
    assert demo.merge("work", "main", allow_empty=True) == demo.head()
    assert demo.refused(merge, "nowhere", "main")[0] == 404
    assert demo.refused(merge, "work", "nowhere")[0] == 404
    wish = models.Merge(strategy="mine")
    assert demo.refused(merge, "work", "main", merge=wish)[0] == 400


def test_a_squash_has_one_parent(demo: Demo) -> None:
    demo.branch("work")
    demo.commit("work", {"a": "1"})
    before = demo.head()
    merged = demo.merge("work", "main", squash_merge=True)
    commit = demo.ask(demo.client.commits_api.get_commit, merged)
    assert (commit.parents, demo.seen("main")) == ([before], {"a": "1"})


def test_the_merge_base_moves_with_each_merge(demo: Demo) -> None:
    demo.commit("main", {"a": "0"})
    demo.branch("work")
    side = demo.commit("work", {"a": "1"})
    demo.merge("work", "main")
    base = demo.ask(demo.client.refs_api.find_merge_base, "work", "main")
    assert base.base_commit_id == side
    demo.commit("work", {"a": "2"})  # would conflict against the old base
    demo.merge("work", "main")
    assert demo.read("main", "a") == "2"


# --- revert, cherry-pick, hard reset --------------------------------------------------------------


def test_a_commit_is_reverted_and_what_came_after_stays(demo: Demo) -> None:
    demo.commit("main", {"a": "1"})
    second = demo.commit("main", {"a": "2", "b": "2"})
    demo.commit("main", {"c": "3"})
    call = demo.client.branches_api.revert_branch
    demo.ask(call, "main", models.RevertCreation(second, 0))
    assert demo.seen("main") == {"a": "1", "c": "3"}
    assert demo.log(amount=1) == [f"Revert {second}"]
    demo.commit("main", {"a": "9"})
    third = demo.commit("main", {"a": "10"})
    demo.commit("main", {"a": "11"})
    assert demo.refused(call, "main", models.RevertCreation(third, 0))[0] == 409  # changed since
    demo.put("main", {"half": "done"})
    assert demo.refused(call, "main", models.RevertCreation(third, 0))[0] == 400


def test_a_merge_is_reverted_relative_to_a_parent(demo: Demo) -> None:
    demo.branch("work")
    demo.commit("work", {"a": "1"})
    demo.commit("main", {"b": "1"})
    merged = demo.merge("work", "main")
    call = demo.client.branches_api.revert_branch
    assert demo.refused(call, "main", models.RevertCreation(merged, 0))[0] == 409
    assert demo.refused(call, "main", models.RevertCreation(merged, 3))[0] == 400
    demo.ask(call, "main", models.RevertCreation(merged, 1))
    assert demo.seen("main") == {"b": "1"}


def test_a_commit_is_picked_onto_another_branch(demo: Demo) -> None:
    demo.commit("main", {"a": "1"})
    demo.branch("work")
    demo.commit("work", {"skipped": "1"})
    wanted = demo.commit("work", {"a": "2"}, message="wanted", metadata={"k": "v"})
    call = demo.client.branches_api.cherry_pick
    made = demo.ask(call, "main", models.CherryPickCreation(wanted))
    assert demo.seen("main") == {"a": "2"}
    told = {"k": "v", "cherry-pick-origin": wanted, "cherry-pick-committer": "admin"}
    assert (made.message, made.metadata) == ("wanted", told)
    merged = demo.merge("main", "work")
    assert demo.refused(call, "main", models.CherryPickCreation(merged))[0] == 400


def test_a_branch_is_reset_to_another_commit(demo: Demo) -> None:
    first = demo.commit("main", {"a": "1"})
    demo.commit("main", {"a": "2"})
    api = lakefs_sdk.ExperimentalApi(sdk_client(demo.server))
    api.hard_reset_branch(demo.repo, "main", "main~")
    assert (demo.head(), demo.seen("main")) == (first, {"a": "1"})


# --- logs and differences -------------------------------------------------------------------------


def test_a_log_is_walked_from_the_youngest_with_filters(demo: Demo) -> None:
    demo.commit("main", {"x/1": "1"}, message="one")
    second = demo.commit("main", {"y": "1"}, message="two")
    demo.branch("work")
    demo.commit("work", {"x/2": "1"}, message="side")
    demo.commit("main", {"y": "2"}, message="three")
    demo.merge("work", "main", message="join")
    assert demo.log() == ["join", "three", "side", "two", "one", "Repository created"]
    assert demo.log(first_parent=True) == ["join", "three", "two", "one", "Repository created"]
    assert demo.log(prefixes=["x/"]) == ["side", "one"]
    assert demo.log(objects=["y"]) == ["three", "two"]
    assert demo.log(amount=2) == ["join", "three"]
    assert demo.log(after=second) == ["one", "Repository created"]
    assert demo.log(stop_at=second) == ["join", "three", "side", "two"]
    page = demo.ask(demo.client.refs_api.log_commits, "main", amount=2)
    assert (page.pagination.has_more, page.pagination.next_offset) == (True, page.results[1].id)
    limited = demo.ask(demo.client.refs_api.log_commits, "main", amount=2, limit=True)
    assert not limited.pagination.has_more


def test_a_difference_is_of_two_dots_or_three(demo: Demo) -> None:
    demo.commit("main", {"kept": "1", "ours": "1", "d/1": "1", "d/2": "1"})
    demo.branch("work")
    demo.commit("main", {"ours": "2"})
    demo.ask(demo.client.objects_api.delete_object, "work", "d/1")
    demo.commit("work", {"new": "1", "d/2": "2"})
    three = {"d/1": "removed", "d/2": "changed", "new": "added"}
    assert demo.diff("main", "work") == three
    assert demo.diff("main", "work", type="two_dot") == {**three, "ours": "changed"}
    assert demo.diff("main", "work", prefix="d/") == {"d/1": "removed", "d/2": "changed"}
    assert demo.diff("main", "work", delimiter="/") == {"d/": "prefix_changed", "new": "added"}
    assert demo.diff("main", "work", after="d/2") == {"new": "added"}
    page = demo.ask(demo.client.refs_api.diff_refs, "main", "work", amount=1)
    assert (page.pagination.has_more, page.pagination.next_offset) == (True, "d/1")


# --- races ----------------------------------------------------------------------------------------


def test_disjoint_merges_in_parallel_all_succeed(demo: Demo) -> None:
    """Three at a time: lakeFS itself gives up with 429 after ten lost races."""
    branches = [f"b{number}" for number in range(12)]
    for name in branches:
        demo.branch(name)
        demo.commit(name, {f"t/{name}": name})
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda name: demo.merge(name, "main"), branches))
    assert demo.seen("main") == {f"t/{name}": name for name in branches}
    assert len(demo.log(first_parent=True)) == 13


def test_a_merge_that_lost_the_race_merges_into_the_new_head(demo: Demo) -> None:
    demo.branch("one")
    demo.branch("two")
    demo.commit("one", {"a": "1"})
    demo.commit("two", {"b": "1"})
    repository = demo.server.catalog.repository(demo.repo)
    update, raced = repository.update, threading.Event()

    def update_late(name, change, **more):
        def late(before):
            after = change(before)
            if name == "main" and after.commit != before.commit and not raced.is_set():
                raced.set()
                demo.merge("two", "main")  # between reading and swapping
            return after

        return update(name, late, **more)

    repository.update = update_late
    demo.merge("one", "main")
    assert raced.is_set()
    assert demo.seen("main") == {"a": "1", "b": "1"}


def test_a_branch_that_moves_every_time_ends_in_429(demo: Demo) -> None:
    demo.branch("work")
    demo.commit("work", {"a": "1"})
    repository = demo.server.catalog.repository(demo.repo)
    update = repository.update

    def update_never(name, change, **more):
        def moved(before):
            after = change(before)
            repository.branches[name] = before.seal()
            return after

        return update(name, moved, **more)

    repository.update = update_never
    merge = demo.client.refs_api.merge_into_branch
    assert demo.refused(merge, "work", "main")[0] == 429


def test_a_commit_whose_first_step_loses_the_race_is_a_server_error(demo: Demo) -> None:
    """lakeFS closes the staging area in one try; what was staged stays and can be committed."""
    demo.put("main", {"a": "1"})
    repository = demo.server.catalog.repository(demo.repo)
    update = repository.update

    def update_once_late(name, change, **more):
        def moved(before):
            after = change(before)
            repository.branches[name] = before.seal()
            return after

        repository.update = update
        return update(name, moved, **more)

    repository.update = update_once_late
    wish = models.CommitCreation("m")
    assert demo.refused(demo.client.commits_api.commit, "main", wish)[0] == 500
    assert demo.seen("main") == {"a": "1"}
    demo.commit("main")
    assert demo.seen("main@") == {"a": "1"}


def test_what_is_staged_is_no_commit(demo: Demo) -> None:
    demo.put("main", {"a": "1"})
    status, body = demo.refused(demo.client.commits_api.get_commit, "main$")
    assert (status, "is not a commit" in body) == (400, True)
    assert demo.diff("main", "main$", type="two_dot") == {"a": "added"}
    tag = models.TagCreation("v1", "main$")
    assert demo.refused(demo.client.tags_api.create_tag, tag)[0] == 400


def test_what_is_written_while_a_merge_runs_is_not_lost(demo: Demo) -> None:
    demo.branch("work")
    demo.commit("work", {"a": "1"})
    repository = demo.server.catalog.repository(demo.repo)
    update, written = repository.update, threading.Event()

    def update_with_a_write(name, change, **more):
        def writing(before):
            after = change(before)
            if after.commit != before.commit and not written.is_set():
                written.set()
                demo.put("main", {"late": "1"})
            return after

        return update(name, writing, **more)

    repository.update = update_with_a_write
    demo.merge("work", "main")
    assert demo.seen("main") == {"a": "1", "late": "1"}
    assert demo.seen("main@") == {"a": "1"}


def test_writers_of_one_path_leave_one_whole_winner(demo: Demo) -> None:
    with ThreadPoolExecutor(4) as threads:
        texts = [str(number) * 1000 for number in range(8)]
        list(threads.map(lambda text: demo.put("main", {"a": text}), texts))
    assert demo.read("main", "a") in texts


def test_a_race_is_planned_with_a_fault_that_only_calls(demo: Demo) -> None:
    demo.branch("work")
    demo.commit("work", {"a": "1"})
    demo.server.faults.add(
        Fault("POST", "/merge/main", then=lambda: demo.commit("main", {"a": "2"}))
    )
    assert demo.refused(demo.client.refs_api.merge_into_branch, "work", "main")[0] == 409
