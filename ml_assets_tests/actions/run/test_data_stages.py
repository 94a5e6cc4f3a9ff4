"""A file that is refused keeps its own partition back, and what is made from it, and no other."""

import re
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from ml_assets.actions.home_page import states
from ml_assets.actions.run.data_stages import failure_of
from ml_assets.actions.run.run import PipelineRun, Request
from ml_assets.adapters.run_log import find_run
from ml_assets.definitions import build
from ml_assets.errors import RunFailed
from ml_assets.records.recent_runs import last_failure
from ml_assets.settings import read_settings
from ml_assets.spec.stages import STAGES
from ml_assets.store.layout import Address, published_partitions
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.conftest import Cli
from ml_assets_tests.worlds import deliveries

NAME = "deliveries"
WEEKS = ["2024-01-01", "2024-01-08", "2024-01-15", "2024-01-22", "2024-01-29"]
NO_TABLE, NO_CONTRACT = WEEKS[1], WEEKS[2]
"""A week whose orders cannot be read, and one whose arrivals break their contract."""


class CommandLine:
    """``ml-assets run``, in this process."""

    def __init__(self, root: Path, instance: dg.DagsterInstance) -> None:
        settings = read_settings()
        graph = open_pipeline(NAME, settings)
        self.sources = root / "sources"
        self.said: list[str] = []
        self.instance = instance
        self._definitions = build(settings)
        self._run = PipelineRun(graph, self._definitions, instance, self.said.append)

    def run(self, through: str) -> None:
        self.said.clear()
        self._run.run(Request(NAME, through=through))

    def published(self, stage: str, source: str | None = None) -> list[str]:
        store = self._run.store
        return list(
            published_partitions(store, store.resolve("main"), Address(NAME, stage, source))
        )

    def answers(self) -> dict[str, str | None]:
        """What each check that a run planned said last; None: nothing."""
        graph = self._definitions.resolve_asset_graph()
        found = self.instance.event_log_storage.get_latest_asset_check_execution_by_key(
            list(graph.asset_check_keys)
        )
        return {
            str(key): one.evaluation.description
            if one.status.value != "PLANNED" and one.evaluation
            else None
            for key, one in found.items()
        }


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    for name in ("home", "sources", "pipelines"):
        monkeypatch.setenv(f"ML_ASSETS_{name.upper()}", str(tmp_path / name))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "sources").mkdir()
    deliveries.plant(tmp_path / "pipelines", tmp_path / "sources", weeks=len(WEEKS))
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        yield CommandLine(tmp_path, instance)


def spoil(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after, 1))


@pytest.mark.timeout(900)  # some ten runs: on a machine at work they take their time
def test_what_cannot_be_made_is_named_and_the_rest_of_the_range_goes_on(
    line: CommandLine, cli: Cli
) -> None:
    spoil(line.sources / "orders" / f"{NO_TABLE}.csv", ",north", ",north,too,many")
    spoil(line.sources / "arrivals" / f"{NO_CONTRACT}.jsonl", '"late": false', '"late": null')
    with pytest.raises(RunFailed) as caught:
        line.run("training_set")
    said = str(caught.value)
    told = re.findall(r"Run (\S+) failed\.|the whole log: ml-assets ops logs (\w+)", said)
    runs = [run for run, _ in told if run]
    assert runs and [log for _, log in told if log] == [run[:8] for run in runs]
    assert all(find_run(line.instance, run[:8]).run_id == run for run in runs)
    assert f"orders/{NO_TABLE}.csv, line " in said
    assert said.endswith("No model was made, because not all data that has arrived could be made.")
    assert f"validated_table/arrivals [{NO_CONTRACT}]: 1 critical expectation" in said
    whole = [week for week in WEEKS if week not in (NO_TABLE, NO_CONTRACT)]
    assert line.published("raw_snapshot", "orders") == [w for w in WEEKS if w != NO_TABLE]
    assert line.published("validated_table", "orders") == [w for w in WEEKS if w != NO_TABLE]
    assert line.published("validated_table", "arrivals") == [w for w in WEEKS if w != NO_CONTRACT]
    assert line.published("derived_table", "closed_orders") == whole
    assert line.published("feature_set") == WEEKS[4:], "made from their own week and the one before"
    left = [one for one in line.said if one.startswith("leave ")]
    assert f"leave {NAME}/feature_set [{WEEKS[3]}]: what it is made from could not be made" in left
    assert not [one for one in line.said if "training_set" in one], "the model waits for all data"

    pipeline = open_pipeline(NAME, read_settings())
    failure = last_failure(pipeline)
    assert failure and failure.startswith("data is missing: deliveries/validated_table/arrivals")
    assert f"[{NO_CONTRACT}] failed at " in failure and "(1 more failure of data stages)" in failure
    lines = {line.split()[0]: line for line in cli("status", NAME).out.splitlines() if "/" in line}
    arrivals = lines[f"{NAME}/validated_table/arrivals"]
    assert arrivals.endswith(f"NOT MADE: {NO_CONTRACT}")
    assert f"{WEEKS[-1]} is " in arrivals, "a digest is of one partition, which is named"
    assert "NOT MADE" not in lines[f"{NAME}/raw_snapshot/raw_arrivals"]
    assert any("Data is missing" in one for one in states(read_settings())[NAME].verdict.reasons)
    unanswered = [key for key, one in line.answers().items() if one is None]
    assert not unanswered, "Dagster shows a check that was planned and not asked as one that failed"

    deliveries.land(line.sources, len(WEEKS))
    line.run("feature_set")
    assert last_failure(pipeline) is None
    assert not [said for said in line.answers().values() if said and "not asked" in said]
    assert line.published("validated_table", "arrivals") == WEEKS
    assert line.published("feature_set") == WEEKS[1:]


def test_a_search_that_its_data_held_back_is_said_not_to_have_begun() -> None:
    failed = RunFailed("Run 1 failed.", [])
    said = str(failure_of([failed], STAGES, search=True))
    assert said.startswith("Run 1 failed.\nNo search was begun, and no model made, because")
    assert str(failure_of([failed], ("raw_snapshot",), search=False)) == "Run 1 failed."
