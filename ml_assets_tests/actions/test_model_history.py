"""The ledger as people read it: newest first, with what was refused and why."""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Literal

import pytest

from ml_assets.actions.model_history import history, was_serving
from ml_assets.errors import NothingReleased
from ml_assets.records.ledger.chain import Appended, Head, append
from ml_assets.settings import DEMO_PIPELINES
from ml_assets.spec.gates import ReleaseSpec, Target
from ml_assets.spec.load import load_spec
from ml_assets.spec.records import LedgerEntry
from ml_assets.store.embedded.store import EmbeddedStore
from ml_assets.store.pipeline_context import open_pipeline
from ml_assets_tests.conftest import Cli
from ml_assets_tests.worlds.opened import pipeline_of
from ml_assets_tests.worlds.world import World


def test_decisions_refusals_and_moves_are_told_newest_first(released: World) -> None:
    told = history(open_pipeline("irises", released.settings))
    assert [one.what for one in told] == ["refused", "to production", "passed", "registered"]
    assert [one.entry.seq for one in told] == [4, 3, 2, 1]
    refused, moved, passed, _ = told
    assert refused.metric == passed.metric
    assert passed.metric.startswith("accuracy 0.9")
    assert moved.metric == ""
    assert "accuracy_floor" in refused.entry.reason
    assert {one.entry.author for one in told} == {"team:botany"}


def test_the_command_prints_a_table_and_the_whole_as_json(released: World) -> None:
    head, newest, *older, now = released.cli("release", "history", "irises").splitlines()
    assert head.split()[:3] == ["when", "(UTC)", "model"]
    assert " refused " in newest
    assert len(older) == 3
    start = head.index("why")
    assert newest[start - 2 : start] == "  "
    (moved,) = [line for line in older if " to production " in line]
    assert now == f"in production now: {moved.split()[2]}"
    document = json.loads(released.cli("release", "history", "irises", "--json"))
    assert document["pipeline"] == "irises"
    gates = document["history"][0]["decision"]["gates"]
    assert [gate["name"] for gate in gates if not gate["passed"]] == ["accuracy_floor"]
    assert len(document["history"][0]["model"]) == 64
    assert document["stages"] == {"production": document["history"][1]["model"]}


def test_who_served_at_a_time_is_told_with_the_line_and_whose_it_was(
    released: World, cli: Cli
) -> None:
    place = open_pipeline("irises", released.settings)
    moved = history(place)[1].entry
    found = was_serving(place, moved.time + timedelta(seconds=1))
    assert (found.entry, found.until) == (moved, None)
    with pytest.raises(NothingReleased, match=r"in production on .* the first came on"):
        was_serving(place, moved.time - timedelta(seconds=1))
    at = (moved.time + timedelta(hours=2)).astimezone(timezone(timedelta(hours=9)))
    told = json.loads(
        released.cli("release", "was-serving", "irises", "--at", at.isoformat(), "--json")
    )
    assert (told["model"], told["since"]["seq"], told["until"]) == (moved.model, moved.seq, None)
    said = cli("release", "was-serving", "irises", "--at", "2026-03-01T12:00", code=2).err
    assert "has no time zone" in said


def test_a_model_that_an_abort_took_out_is_not_there_still(tmp_path: Path) -> None:
    spec = load_spec(DEMO_PIPELINES / "flight_delays")
    staging = spec.model_copy(update={"release": ReleaseSpec(to="staging")})
    place = pipeline_of(spec=staging, store=EmbeddedStore(tmp_path))

    def write(kind: Literal["stage", "abort"], stage: Target | None) -> LedgerEntry:
        def line(head: Head) -> LedgerEntry:
            return LedgerEntry(
                seq=head.seq,
                previous=head.previous,
                kind=kind,
                model="a" * 64,
                stage=stage,
                author="ada",
                reason="r",
                run="",
                time=datetime.now(UTC),
            )

        written = append(place.store, place.name, line)
        assert isinstance(written, Appended)
        return written.entry

    moved, stopped = write("stage", "staging"), write("abort", None)
    assert was_serving(place, moved.time).until == stopped


def test_before_any_decision_it_says_what_to_do(released: World, tmp_path: Path) -> None:
    new = World(tmp_path, {"ML_ASSETS_PIPELINES": str(released.pipelines)})
    assert "ml-assets run irises" in new.cli("release", "history", "irises")
