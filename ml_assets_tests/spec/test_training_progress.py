"""The story of a session says what its epochs drew in the words of its task."""

from datetime import UTC, datetime

import pytest

from ml_assets.spec.training import Task
from ml_assets.spec.training_program.events import DrawnRows, EpochEnded
from ml_assets.spec.training_progress import TrainingStory


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("binary", "2 whole epochs drew 1,000 rows, each once"),
        ("ranking", "2 whole epochs drew 1,000 queries, each once"),
        ("language_model", "2 whole epochs drew 1,000 windows, each once"),
    ],
)
def test_what_epochs_drew_is_named_by_the_task(task: Task, said: str) -> None:
    story = TrainingStory()
    for epoch in (1, 2):
        drawn = DrawnRows.all_of(1000)
        now = datetime.now(UTC)
        story.take(
            EpochEnded(session="s", attempt=1, seq=epoch, time=now, epoch=epoch, drawn=drawn)
        )
    assert story.rows_counted(task) == said
