"""Draws docs/recovery.svg from two real trainings: python benchmarks/recovery_picture.py FILE

The same training twice, two processes each: once undisturbed, once with a process killed. What is
drawn is what their events told, when they told it, and the digests of the weights they ended with.
"""

import os
import signal
import sys
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from generated import training_set
from recovery import workers

from ml_assets.launch.launcher import TrainJob
from ml_assets.launch.local.launcher import LocalLauncher
from ml_assets.reports.drawing import Axis, Scale, Series, line_chart, svg
from ml_assets.reports.picture import svg_file
from ml_assets.spec.training import TabM, TrainingSpec
from ml_assets.spec.training_program import Ref
from ml_assets.spec.training_program.events import Checkpoint, Event, Metrics, Progress, Warning
from ml_assets.store.objects import file_digest

MODEL = TabM(family="tabm", width=128, depth=2, members=12)
SPEC = TrainingSpec(
    epochs=3, batch_size=960, microbatches=24, evaluate_every=5, patience=1000, processes=2
)
ROWS = 57_600
KILLED_AT = 60
WIDTH, LANES = 760, 150


@dataclass
class Story:
    """What one training told, in seconds from when it was asked for."""

    kill_at: int | None
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    killed: float = 0.0
    saved: int = 0
    """Step of the last checkpoint before the kill."""
    resumed: str = ""
    first: float = 0.0
    again: float = 0.0
    """The first step after it was resumed was told."""
    ended: float = 0.0
    losses: list[tuple[float, float]] = field(default_factory=list)
    weights: str = ""

    def take(self, event: Event) -> None:
        """Kill a process at its step; note what is told."""
        at = (event.time - self.began).total_seconds()
        self.ended = max(self.ended, at)
        if isinstance(event, Progress | Warning) and event.message.startswith("resumed"):
            self.resumed = event.message
        if isinstance(event, Checkpoint) and not self.killed:
            self.saved = event.step
        if isinstance(event, Metrics):
            self._step(event, at)

    def _step(self, event: Metrics, at: float) -> None:
        self.losses.append((float(event.step), event.metrics["train_loss"]))
        self.first = self.first or at
        if self.resumed and not self.again:
            self.again = at
        if self.kill_at is not None and not self.killed and event.step >= self.kill_at:
            os.kill(workers()[-1], signal.SIGKILL)
            self.killed = (datetime.now(UTC) - self.began).total_seconds()


def main() -> None:
    """Train twice, and draw."""
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        data = training_set(ROWS, Path(folder) / "shards")
        calm = told(Path(folder) / "calm", data, None)
        hit = told(Path(folder) / "hit", data, KILLED_AT)
    assert calm.weights == hit.weights, "the weights differ: this would be a bug"
    target.write_text(svg_file(picture(calm, hit)))
    print(
        f"{target}: recovered in {hit.again - hit.killed:.1f} s; weights {hit.weights[:12]} twice"
    )


def told(objects: Path, data: Ref, kill_at: int | None) -> Story:
    story = Story(kill_at)
    job = TrainJob("recovery", MODEL, SPEC, data)
    result = LocalLauncher(objects).train(job, story.take)
    story.weights = file_digest(Path(result.model.uri) / "weights.safetensors")
    return story


def picture(calm: Story, hit: Story) -> str:
    """The processes over time, above the losses over the steps."""
    chart = line_chart(
        "training loss of both",
        [
            Series("undisturbed", calm.losses, "plain"),
            Series("killed and resumed", hit.losses, "one", dots=True, joined=False),
        ],
        Axis("step"),
        Axis("training loss"),
        wide=True,
    )
    inner = chart[chart.index(">") + 1 : chart.rindex("</svg>")]
    same = ("The same losses,", "and the same weights,", "bit for bit:", f"{hit.weights[:12]}…")
    parts = [
        *lanes(hit),
        f'<g transform="translate(12,{LANES})">{inner}</g>',
        *(
            f'<text class="note" x="{WIDTH - 160}" y="{LANES + 60 + 20 * line}">{words}</text>'
            for line, words in enumerate(same)
        ),
    ]
    return svg("What happens when a process of the training dies", WIDTH, LANES + 264, parts)


def lanes(hit: Story) -> list[str]:
    """Two processes as bars in seconds, the kill, and what came of it."""
    x = Scale.over([0.0, hit.ended], Axis("seconds", 0.0, hit.ended), 74, WIDTH - 24)
    parts: list[str] = []
    for rank, top in enumerate((38, 66)):
        parts.append(f'<text class="name" x="16" y="{top + 14}">rank {rank}</text>')
        for start, end in ((hit.first, hit.killed), (hit.again, hit.ended)):
            place = f'x="{x(start):g}" y="{top}" width="{x(end) - x(start):.1f}" height="18"'
            parts.append(f'<rect class="bar one" rx="4" {place}/>')
    parts += cross(x(hit.killed), 75)
    middle = (x(hit.killed) + x(hit.again)) / 2
    gap = hit.again - hit.killed
    parts += [
        f'<text class="note" x="{x(hit.killed):g}" y="24" text-anchor="middle">SIGKILL</text>',
        f'<text class="label" x="{middle:g}" y="108" text-anchor="middle">{gap:.1f} s: both are'
        " started again</text>",
        f'<text class="label" x="{middle:g}" y="124" text-anchor="middle">{hit.resumed}</text>',
        f'<text class="label" x="{x(hit.first):g}" y="108">training</text>',
    ]
    return parts


def cross(x: float, y: float) -> list[str]:
    """Where a process died."""
    lines = (f"M{x - 7:g} {y - 7}l14 14M{x - 7:g} {y + 7}l14 -14",)
    return [f'<path class="line bad" d="{line}"/>' for line in lines]


if __name__ == "__main__":
    main()
