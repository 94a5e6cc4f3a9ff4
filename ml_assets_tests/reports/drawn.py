"""What tests read of pictures: their files, words and titles; records and stories to draw."""

import re
from base64 import b64decode
from datetime import UTC, datetime
from xml.etree import ElementTree

from ml_assets.reports.picture import IMAGE_BYTES, Picture, album
from ml_assets.spec.records import StageRecord
from ml_assets.spec.training_program.events import FixedBatch, Metrics
from ml_assets.spec.training_progress import TrainingStory

HOSTILE = "<script>alert(1)</script>\x00](x)"
NOW = datetime(2026, 1, 2, tzinfo=UTC)
HEAD = {"session": "s", "attempt": 1, "seq": 0, "time": NOW}


def record(partition, rows=100, **attributes):
    return StageRecord(
        key="p/stage",
        partition=partition,
        run_key="a" * 64,
        code_version="c",
        data_version="d",
        rows=rows,
        inputs=(),
        attributes=attributes,
        run="r",
        time=NOW,
    )


def files(pictures):
    """The SVG file of each picture as an asset page holds it."""
    found = re.findall(r"!\[.*?\]\(data:image/svg\+xml;base64,([^)]*)\)", album(pictures))
    assert len(found) == sum(isinstance(one, Picture) for one in pictures)
    assert all(len(file) < IMAGE_BYTES for file in found)
    return [b64decode(file).decode() for file in found]


def words(svg):
    """All that is written in a picture."""
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.attrib["width"] and root.attrib["height"]
    texts = ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "nan" not in svg and "inf" not in svg
    return " | ".join(texts)


def titles(pictures):
    return [picture.title for picture in pictures]


def told(steps, rows=32, outputs=1, label=lambda row: float(row % 2)):
    story = TrainingStory()
    for step in range(10, steps + 1, 10):
        metrics = {"train_loss": 0.7, "validation_loss": 1 / step, "learning_rate": 1e-3}
        story.take(Metrics(**HEAD, step=step, metrics=metrics))
        predictions = tuple((row / rows,) * outputs for row in range(rows))
        labels = tuple(label(row) for row in range(rows))
        story.take(FixedBatch(**HEAD, step=step, labels=labels, predictions=predictions))
    return story
