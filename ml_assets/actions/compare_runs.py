"""Compares any two runs, models or releases: spec, data, metrics, importance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ml_assets.errors import UnknownRun, counted
from ml_assets.records.experiments import RunStory
from ml_assets.records.ledger.chain import read
from ml_assets.records.ledger.stages import moves
from ml_assets.records.model_changes import differences
from ml_assets.records.recent_runs import by_model, candidate, find
from ml_assets.spec.records import Change
from ml_assets.store.pipeline_context import Pipeline

SCHEMA = 1


@dataclass(frozen=True)
class RunComparison:
    """A comparison of two runs: what each has, and what differs."""

    before: RunStory
    after: RunStory
    changes: Sequence[Change]

    def document(self) -> dict[str, Any]:
        """The comparison as a JSON document."""
        sides = {"before": self.before, "after": self.after}
        return {
            "schema": SCHEMA,
            **{
                n: {"run": s.folder.run, "model": s.digest, "said": dict(said(s))}
                for n, s in sides.items()
            },
            "changes": [change.model_dump(mode="json") for change in self.changes],
        }


def said(story: RunStory) -> list[tuple[str, str]]:
    """The words of a run and the notes that people made on it, the newest last."""
    words = story.begun.words.said() if story.begun else {}
    verdicts = [note.verdict for note in story.notes if note.verdict]
    notes = [f"{note.note} ({note.author})" for note in story.notes if note.note]
    later = {"verdict": verdicts[-1] if verdicts else "", "notes": "; ".join(notes)}
    return [(name, text) for name, text in {**words, **later}.items() if text]


def compare(pipeline: Pipeline, before: str | None, after: str | None) -> RunComparison:
    """Compare two runs or models; without names the last release with the one before it.

    Raises:
        UnknownRun: one of them is not known, or there are no two releases.
    """
    if before is not None and after is not None:
        old, new = find(pipeline, before), find(pipeline, after)
    else:
        old, new = _last_releases(pipeline)
    return RunComparison(old, new, differences(candidate(old), candidate(new)))


def _last_releases(pipeline: Pipeline) -> tuple[RunStory, RunStory]:
    moved = [e.model for e in moves(read(pipeline.store, pipeline.name), pipeline.spec.release.to)]
    models = list(dict.fromkeys(reversed(moved)))[:2]
    found = by_model(pipeline, set(models))
    if len(found) < 2:
        raise UnknownRun(
            f"{pipeline.name} has {counted(len(found), 'release')}, and two are needed to compare."
            f" Name two runs or models: ml-assets models compare {pipeline.name} A B"
        )
    return found[models[1]], found[models[0]]
