"""Runs are written down once, only ever added to, and their words change no name."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from ml_assets.errors import StorageError
from ml_assets.records.experiments import (
    FAILED,
    Begun,
    FailedStep,
    Note,
    Words,
    add,
    add_note,
    begin,
    folder_of,
    folders,
    read,
    tracking_tags,
)
from ml_assets.spec.base import canonical_json

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
RUN = "3fb92832-1f7d-4c9e-9d75-1f0f2f0f2f0f"


def begun(run=RUN, time=NOW, **words):
    return Begun(
        pipeline="delays",
        run=run,
        trigger="by hand",
        words=Words.of(words),
        config={"name": "delays"},
        time=time,
    )


def note(text, verdict=None):
    return Note(run=RUN, model=None, verdict=verdict, note=text, author="ada", time=NOW)


def head(store):
    return store.resolve("main")


def test_words_are_on_one_line_and_as_long_as_they_may_be():
    said = Words.of(
        {"experiment": "a\n b\x00\x1b[31mc\udcff", "goal": "  ", "hypothesis": "x" * 2000}
    )
    assert said.experiment == "a b [31mc"
    assert said.goal is None
    assert said.hypothesis is not None
    assert len(said.hypothesis) == 1000
    assert Words.of({"experiment": 3}).said() == {}


def test_a_run_is_begun_once(store):
    begin(store, begun(experiment="first"))
    begin(store, begun(experiment="second", time=NOW + timedelta(hours=1)))
    (folder,) = folders(store, head(store), "delays")
    assert folder.begun == NOW
    story = read(store, head(store), folder)
    assert story.begun is not None
    assert story.begun.words.experiment == "first"


def test_the_newest_run_comes_first_and_another_pipeline_is_not_among_them(store):
    begin(store, begun("run-b", NOW))
    begin(store, begun("run-a", NOW + timedelta(seconds=1)))
    begin(store, begun("run-c").model_copy(update={"pipeline": "other"}))
    assert [f.run for f in folders(store, head(store), "delays")] == ["run-a", "run-b"]


def test_what_is_written_stays_as_it_is(store):
    begin(store, begun())
    first, second = (
        canonical_json(FailedStep(stage="trained_model", reason=why, time=NOW))
        for why in ("a", "b")
    )
    add(store, "delays", RUN, {FAILED: first})
    add(store, "delays", RUN, {FAILED: second})
    story = read(store, head(store), folder_of(store, "delays", RUN))
    assert story.failed is not None
    assert story.failed.reason == "a"


def test_nothing_is_added_to_a_run_that_never_began(store):
    with pytest.raises(StorageError, match="has no folder"):
        add(store, "delays", RUN, {FAILED: b"{}"})


def test_a_note_is_added_and_none_is_lost_where_many_write_at_once(store):
    begin(store, begun())
    folder = folder_of(store, "delays", RUN)
    with ThreadPoolExecutor(8) as many:
        list(many.map(lambda n: add_note(store, folder, note(str(n))), range(16)))
    story = read(store, head(store), folder_of(store, "delays", RUN))
    assert sorted(int(n.note) for n in story.notes) == list(range(16))


def test_a_record_that_cannot_be_read_is_named(store):
    begin(store, begun())
    add(store, "delays", RUN, {FAILED: b'{"stage": 1}'})
    with pytest.raises(StorageError, match=r"failed\.json at commit"):
        read(store, head(store), folder_of(store, "delays", RUN))


def test_mlflow_gets_the_words_and_the_newest_note_as_tags():
    words = Words(experiment="width", goal="0.75")
    assert tracking_tags(words, note("good", "confirmed")) == {
        "ml_assets.experiment": "width",
        "ml_assets.goal": "0.75",
        "ml_assets.verdict": "confirmed",
        "ml_assets.note": "good",
    }
