"""What an order of blocks costs on the real flights: python benchmarks/orders.py

The flights' own network trains on the flights' own training set: in an order of rows, by blocks of
4,096 rows with 16 and with 4 of them in a window, and in an order of rows from another seed, which
says how much is chance. One microbatch has all rows of a step, so a window is a third of the split,
or a twelfth: with the 24 of the flights' spec the rows are mixed better. The curves of validation
log-loss are printed and kept in results/order_curves.json. NAME VALUE AIM holds|short.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from figures import KEPT, tell
from generated import train_request

import ml_assets.pipelines
from ml_assets.extras.demo.outside_world import WEEKS, lay_out
from ml_assets.spec.load import load_spec
from ml_assets.spec.training_program import SCHEMA_FILE, Ref
from ml_assets.training.events import EventWriter
from ml_assets.training.train import train

NAME = "flight_delays"
FOLDER = Path(ml_assets.pipelines.__path__[0]) / NAME
WAYS = {
    "rows": {},
    "rows_of_another_seed": {"seed": 1},
    "blocks_of_window_16": {"order": "blocks", "block_window": 16},
    "blocks_of_window_4": {"order": "blocks", "block_window": 4},
}
AIM = 0.002
"""Nats above the loss of the order of rows."""
FEW = (
    "Four blocks of a single lane are a twelfth of the split:"
    " too few weeks are mixed with each other."
)
CURVES = Path(__file__).parent / "results" / "order_curves.json"

Curve = dict[int, float]


def main() -> None:
    """Print the curves, and each one's distance from the order of rows."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="orders-") as folder:
        data = _training_set(Path(folder))
        curves = {way: curve(Path(folder) / way, data, **asked) for way, asked in WAYS.items()}
    print("steps", *curves["rows"])
    for way, found in curves.items():
        print(way, *(f"{loss:.4f}" for loss in found.values()), flush=True)
    for way in [*WAYS][1:]:
        apart = [curves[way][step] - loss for step, loss in curves["rows"].items()]
        why = FEW if way == "blocks_of_window_4" else ""
        tell(f"{way}_above_rows_at_the_end", apart[-1], AIM, why=why)
        print(f"{way}_above_rows_at_most {max(apart):.4f}")
    if KEPT in os.environ:
        CURVES.write_text(json.dumps(curves, indent=1) + "\n")


def curve(folder: Path, data: Ref, **asked: object) -> Curve:
    """Step -> validation log-loss of a training in this order."""
    spec = load_spec(FOLDER)
    fixed = {"microbatches": 1, "processes": 1, "patience": 100}
    training = spec.training.model_copy(update=fixed | asked)
    request = train_request(folder, data, spec.model, training)
    train(request, EventWriter(Path(request.output.events), request.session, 1, rank=0))
    told = map(json.loads, Path(request.output.events).read_text().splitlines())
    metrics = [one for one in told if one["kind"] == "metrics"]
    return {
        one["step"]: one["metrics"]["validation_loss"]
        for one in metrics
        if "validation_loss" in one["metrics"]
    }


def _training_set(root: Path) -> Ref:
    """That of the year's last window, made by the product."""
    lay_out(root / "world", arrived=WEEKS)
    apart = {k: v for k, v in os.environ.items() if not k.startswith("ML_ASSETS_")}
    places = {"ML_ASSETS_HOME": str(root / "home"), "ML_ASSETS_SOURCES": str(root / "world")}
    command = [sys.executable, "-m", "ml_assets.cli.main", "run", NAME, "--through", "training_set"]
    subprocess.run(command, env=apart | places, check=True, stdout=subprocess.DEVNULL)
    (schema,) = (root / "home").rglob(f"shards/{NAME}/*/{SCHEMA_FILE}")
    return Ref(uri=str(schema.parent), digest=schema.parent.name)


if __name__ == "__main__":
    main()
