"""All that a run said is in its log, once, in the order of time, with who said it."""

import re
from pathlib import Path

import dagster as dg
import pytest

from ml_assets.adapters.run_log import Line, RunLog, find_run
from ml_assets.errors import UnknownRun
from ml_assets_tests.worlds.world import World


def log_of(world: World, run: dg.DagsterRun, instance: dg.DagsterInstance) -> RunLog:
    return RunLog(instance, run.run_id, Path(world.settings.objects) / "sessions")


@pytest.fixture(scope="module")
def lines(released: World) -> list[Line]:
    """The log of the run that trained on two ranks."""
    with released.instance() as instance:
        run = find_run(instance, "latest")
        return log_of(released, run, instance).new()


def test_events_messages_and_every_rank_are_there_in_the_order_of_time(lines: list[Line]) -> None:
    assert [line.time for line in lines] == sorted(line.time for line in lines)
    texts = [line.text for line in lines]
    assert any("STEP_START" in text for text in texts)
    assert any(text.startswith("step 20 of ") for text in texts)
    printed = [line.text for line in lines if line.origin.startswith("deliveries-train attempt 1")]
    ranks = {found[1] for text in printed if (found := re.match(r"\[rank(\d)\]:", text))}
    assert ranks == {"0", "1"}


def test_nothing_is_told_twice(lines: list[Line]) -> None:
    steps = [line.text for line in lines if line.text.strip().startswith("step 20 of ")]
    assert len(steps) == 1


def test_a_second_look_gives_only_what_is_new(released: World) -> None:
    with released.instance() as instance:
        log = log_of(released, find_run(instance, "latest"), instance)
        assert log.new()
        assert log.new() == []


def test_a_run_is_found_by_a_unique_beginning_of_its_id(released: World) -> None:
    with released.instance() as instance:
        newest = find_run(instance, "latest")
        assert find_run(instance, newest.run_id[:8]).run_id == newest.run_id
        with pytest.raises(UnknownRun, match="There is no run 'zzz'; the newest are: "):
            find_run(instance, "zzz")
        with pytest.raises(UnknownRun, match="runs begin with ''"):
            find_run(instance, "")


def test_without_any_run_it_says_what_to_do(tmp_path: Path) -> None:
    with (
        dg.DagsterInstance.local_temp(str(tmp_path)) as instance,
        pytest.raises(UnknownRun, match="ml-assets run PIPELINE"),
    ):
        find_run(instance, "latest")


def test_the_exit_code_tells_whether_the_run_failed(released: World) -> None:
    newest = released.streams("ops", "logs", "latest")
    assert "SUCCESS" in newest.stdout.splitlines()[-1]
    assert newest.stderr.startswith("before this one came run ")
    with released.instance() as instance:
        failed = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
    said = released.cli("ops", "logs", failed[0].run_id[:8], "--follow", code=1)
    assert "accuracy_floor" in said
    assert said.splitlines()[-1].endswith(": FAILURE")
