"""A comparison shows why each run was made, and what people made of it afterwards."""

from datetime import UTC, datetime

from ml_assets.actions.compare_runs import RunComparison, said
from ml_assets.records.experiments import Begun, Note, RunFolder, RunStory, Words

AT = datetime(2024, 1, 1, tzinfo=UTC)


def story(run: str, words: Words, *notes: Note) -> RunStory:
    begun = Begun(pipeline="irises", run=run, trigger="by hand", words=words, config={}, time=AT)
    folder = RunFolder("irises", AT, run)
    return RunStory(folder, begun, None, None, None, None, None, None, notes)


def note(verdict: str | None, text: str | None) -> Note:
    return Note(run="b", model=None, verdict=verdict, note=text, author="eve", time=AT)  # pyright: ignore[reportArgumentType]


def test_hypothesis_newest_verdict_and_all_notes_are_shown() -> None:
    words = Words(hypothesis="it begins lower")
    after = story("b", words, note("open", "first"), note("rejected", None), note(None, "second"))
    told = [
        ("hypothesis", "it begins lower"),
        ("verdict", "rejected"),
        ("notes", "first (eve); second (eve)"),
    ]
    assert said(after) == told
    document = RunComparison(story("a", Words()), after, ()).document()
    assert document["before"]["said"] == {}
    assert document["after"]["said"] == dict(told)
