"""Runs side by side on a real store: what was said, what came of it, failures too."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from ml_assets.actions.experiments import page
from ml_assets.actions.home_page import states
from ml_assets.actions.note import take_note
from ml_assets.actions.override import OverrideMade, override
from ml_assets.adapters.run_journal import word_tags, words_of
from ml_assets.definitions import build
from ml_assets.errors import UnknownRun
from ml_assets.records.experiments import Words
from ml_assets.records.recent_runs import find, rows
from ml_assets.records.tracking.outbox import Outbox
from ml_assets.store.objects import LocalObjects
from ml_assets.store.pipeline_context import Pipeline, open_pipeline
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

BEGIN = f"begin.safetensors@sha256:{'0' * 64}"
MISSING = irises.SPEC.replace("epochs: 30", f"epochs: 30\n    init_from: {BEGIN}")
WORDS = {"experiment": "warm <i>start</i>", "hypothesis": "it begins\nlower", "goal": "0.9"}


def spec_of(world: World) -> Path:
    return world.pipelines / "irises" / "defs.yaml"


@pytest.fixture(scope="module")
def world(released: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A copy of the released world, in which runs then fail; its models stay where they are."""
    root = tmp_path_factory.mktemp("experiments")
    shutil.copytree(released.root, root, dirs_exist_ok=True)
    world = World(root, {**released.extra, "ML_ASSETS_PRICES": "node=36"})
    spec_of(world).write_text(MISSING)
    arguments = [part for name, text in WORDS.items() for part in (f"--{name}", text)]
    world.cli("run", "irises", *arguments, code=1)
    return world


@pytest.fixture
def place(world: World) -> Pipeline:
    return open_pipeline("irises", world.settings)


@pytest.fixture
def refresh(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.JobDefinition]:
    """The job that the UI launches, in this process."""
    world.enter(monkeypatch)
    yield build(world.settings, only="irises").resolve_job_def("irises__refresh")


def test_the_released_world_shows_what_was_passed_and_what_was_refused(released: World) -> None:
    refused, passed = rows(open_pipeline("irises", released.settings))
    assert (passed.outcome.said, refused.outcome.said) == ("passed", "refused by accuracy_floor")
    assert passed.stage == "production"
    assert "not at least 0.9999" in refused.outcome.why
    assert passed.metrics["accuracy"].low < passed.metrics["accuracy"].value <= 1
    assert passed.rows == 73
    assert (passed.seconds or 0) > 0
    assert "/#/runs/" in (passed.mlflow or ""), "settings and curves are there"
    assert passed.validation_loss is not None
    assert passed.cost is None
    assert refused.seconds is None, "it trained nothing"


def test_a_run_that_failed_is_there_with_its_words_and_its_reason(place: Pipeline) -> None:
    failed, *others = rows(place)
    assert len(others) >= 2
    assert failed.words == Words.of(WORDS).said()
    assert failed.outcome.said == "failed at trained_model"
    assert "begin.safetensors" in failed.outcome.why
    assert failed.model is None
    assert failed.rows == 73, "the training set was there"


def test_the_status_and_the_first_page_say_that_the_last_run_failed(world: World) -> None:
    said = world.cli("status", "irises")
    (line,) = [one for one in said.splitlines() if "the last run" in one]
    assert "failed at trained_model: " in line
    assert "begin.safetensors" in line
    home = states(world.settings)
    reasons = home["irises"].verdict.reasons
    assert any("The last run" in one and "begin.safetensors" in one for one in reasons)
    assert "the last run" not in str(home["deliveries"].verdict.reasons).lower()


def test_the_ui_says_the_same_words_by_tags_or_by_configuration(
    world: World, refresh: dg.JobDefinition, place: Pipeline
) -> None:
    told: list[dict[str, str]] = []
    key = dg.AssetKey(["irises", "trained_model"])
    checkpoints = dg.AssetKey(["irises", "checkpoints"])
    config = {"ops": {"irises__train": {"config": WORDS}}}
    with world.instance() as instance:
        for given in ({"tags": word_tags(Words.of(WORDS))}, {"run_config": config}):
            done = refresh.get_subset(asset_selection={key, checkpoints}).execute_in_process(
                instance=instance, raise_on_error=False, **given
            )
            assert not done.success
            run = instance.get_run_by_id(done.run_id)
            assert run is not None
            assert words_of(run, "irises") == Words.of(WORDS)
            assert {k: v for k, v in run.tags.items() if k in word_tags(Words.of(WORDS))} == (
                word_tags(Words.of(WORDS))
            )
            (row,) = rows(place, 1)
            assert row.run == done.run_id
            told.append(dict(row.words))
    assert told[0] == told[1] == Words.of(WORDS).said()


def test_words_are_no_part_of_any_name(world: World, place: Pipeline) -> None:
    spec_of(world).write_text(irises.SPEC)
    before = place.store.read_bytes(place.store.resolve(), "records/irises/trained_model/all.json")
    said = world.cli("run", "irises", "--experiment", "another name")
    spec_of(world).write_text(MISSING)
    assert "irises__train" not in said, "the words made nothing due"
    after = place.store.read_bytes(place.store.resolve(), "records/irises/trained_model/all.json")
    assert after == before
    assert "passed" in rows(place, 1)[0].outcome.said or "no run was needed" in said


def test_notes_are_added_by_run_and_by_model_and_the_newest_verdict_is_shown(
    world: World, place: Pipeline
) -> None:
    run = next(row.run for row in rows(place) if row.model is None)
    take_note(place, run[:8], "open", "first", "ada")
    take_note(place, "production", "confirmed", None, "ada")
    world.cli("models", "note", "irises", run[:8], "--note", "second <b>", "--author", "bob")
    story = find(place, run)
    assert [(n.author, n.verdict, n.note) for n in story.notes] == [
        ("ada", "open", "first"),
        ("bob", None, "second <b>"),
    ]
    row = next(row for row in rows(place) if row.run == run)
    assert find(place, "production").notes[-1].verdict == "confirmed"
    assert (row.verdict, row.note, row.author) == ("open", "second <b>", "bob")
    assert "second &lt;b&gt;" in page(place)
    assert "Say --verdict" in world.cli("models", "note", "irises", "latest", code=2)


def test_a_note_that_mlflow_did_not_take_is_owed_to_it(world: World) -> None:
    away = World(world.root, {**world.extra, "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"})
    said = away.cli(
        "models", "note", "irises", "production", "--verdict", "rejected", "--author", "ada"
    )
    assert "MLflow gets the note with the next run" in said
    (entry,) = Outbox(away.settings.home, LocalObjects(away.root)).all()
    assert entry.tags["ml_assets.verdict"] == "rejected"


def test_two_runs_are_compared_by_what_differs(world: World, place: Pipeline) -> None:
    failed = next(row.run for row in rows(place) if row.outcome.tone == "bad" and not row.model)
    told = json.loads(world.cli("models", "compare", "irises", "production", failed, "--json"))
    assert [(c["name"], c["before"], c["after"]) for c in told["changes"]] == [
        ("training.init_from", "null", BEGIN)
    ]
    assert "and two are needed to compare" in world.cli("models", "compare", "irises", code=1)
    assert "Name both" in world.cli("models", "compare", "irises", "production", code=2)


def test_a_comparison_says_why_each_run_was_made_and_what_people_made_of_it(
    world: World, place: Pipeline
) -> None:
    failed = next(row.run for row in rows(place) if row.outcome.tone == "bad" and not row.model)
    take_note(place, failed, "rejected", "no such <file>", "eve")
    said = world.cli("models", "compare", "irises", "production", failed)
    a, b = said.index("A: run "), said.index(f"B: run {failed[:8]}")
    of_b = said[b:].splitlines()
    assert "hypothesis" not in said[a:b], "nobody said why"
    assert of_b[0].endswith("UTC, no model")
    assert of_b[1:4] == [
        "   experiment: warm <i>start</i>",
        "   hypothesis: it begins lower",
        "   goal: 0.9",
    ]
    assert "   verdict: rejected" in of_b
    assert next(line for line in of_b if "notes:" in line).endswith("no such <file> (eve)")
    assert [line.split() for line in of_b if "init_from" in line] == [
        ["spec", "training.init_from", "null", BEGIN]
    ]


@pytest.mark.parametrize("wanted", ["../irises", "zz", "", "%2e%2e", "canary", "ffffffff"])
def test_a_name_that_is_none_is_refused_and_the_known_ones_are_told(
    place: Pipeline, wanted: str
) -> None:
    with pytest.raises(UnknownRun, match="The newest runs: "):
        find(place, wanted)


def test_the_command_prints_the_runs_and_where_the_page_is(world: World) -> None:
    *_, where = world.cli("models", "experiments", "irises", "--last", "1").splitlines()
    html = Path(where).read_text()
    assert html.count("<tr>") == 2
    assert "not a number from 1" in world.cli(
        "models", "experiments", "irises", "--last", "0", code=2
    )


def test_the_newest_runs_are_on_the_asset_page_with_a_link_to_all(released: World) -> None:
    shown = released.page("irises", "evaluation_report")
    assert "The last runs" in shown["last_runs"]
    where = f"{released.extra['ML_ASSETS_REPORTS_URL']}/irises/experiments.html"
    assert shown["experiments"] == where


def test_a_refusal_that_somebody_overrode_says_so(released: World, tmp_path: Path) -> None:
    shutil.copytree(released.root, tmp_path, dirs_exist_ok=True)
    place = open_pipeline("irises", World(tmp_path, released.extra).settings)
    assert isinstance(override(place.store, "irises", None, "ada", "for the show"), OverrideMade)
    refused, passed = rows(place)
    assert refused.outcome.said == "refused by accuracy_floor; OVERRIDDEN by ada"
    assert refused.outcome.why.endswith("Overridden: for the show")
    assert refused.outcome.tone == "bad"
    assert passed.outcome.said == "passed", "that decision was another one"
