"""How long a recall takes to find what it reached: python benchmarks/recall.py

CPU time, for the machine may be busy. A simulated history of 10^5 assets: sources by the week,
tables, features that look back, and models trained on windows of them, each made once or twice.
One figure a line: NAME VALUE AIM holds|short.
"""

import random
import time

from figures import tell

from ml_assets.extras.recall.recall import Derivation, spread
from ml_assets.records.record_history import Node

EACH_IS = "the worst of five turns"

ASSETS = 100_000
PIPELINES = 20
LOOK_BACK = 4
WINDOW = 40
ROUNDS = 5


def history(assets: int, seed: int = 0) -> list[Derivation]:
    """Everything that was ever made: oldest first."""
    draw, found = random.Random(seed), list[Derivation]()
    weeks = assets // (PIPELINES * 4)
    for pipeline in range(PIPELINES):
        nodes: dict[str, list[Node]] = {
            stage: [] for stage in ("raw", "table", "features", "model")
        }

        def add(
            stage: str,
            week: int,
            inputs: list[Node],
            at: int = pipeline,
            seen: dict[str, list[Node]] = nodes,
        ) -> None:
            made: Node = f"p{at}/{stage}", str(week), f"{at}-{stage}-{week}"
            found.extend(Derivation(made, tuple(inputs)) for _ in range(draw.choice((1, 1, 2))))
            seen[stage].append(made)

        for week in range(weeks):
            add("raw", week, [])
            add("table", week, nodes["raw"][-1:])
            add("features", week, nodes["table"][-LOOK_BACK - 1 :])
            add("model", week, nodes["features"][-WINDOW:])
    return found


def main() -> None:
    graph = history(ASSETS)
    first: Node = "p0/raw", "10", "0-raw-10"
    seconds: list[float] = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        reached = spread([first], graph)
        seconds.append(time.process_time() - begun)
    outputs = len({derivation.output for derivation in graph})
    print(f"# {outputs:,} assets, {len(graph):,} times made, {len(reached):,} reached")
    tell("recall_seconds_at_1e5_assets", max(seconds), 1.0)


if __name__ == "__main__":
    main()
