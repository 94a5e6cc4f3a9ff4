"""A pipeline's spec, and rows of its three splits that trip no guard."""

from pathlib import Path

import pytest

from ml_assets.spec.load import load_spec
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.training_program import Split
from ml_assets_tests.assets.training_set.split_leaks.labelled_rows import Rows, orders
from ml_assets_tests.worlds import deliveries


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("leaks")
    deliveries.plant(root / "pipelines", root / "sources")
    return root / "pipelines" / "deliveries"


@pytest.fixture(scope="module")
def spec(folder: Path) -> PipelineSpec:
    return load_spec(folder)


@pytest.fixture
def sound() -> Rows:
    """Orders of nine weeks, with an embargo of one between the splits."""
    spans: dict[Split, tuple[int, int]] = {
        "train": (0, 6),
        "validation": (7, 8),
        "holdout": (9, 11),
    }
    return {name: orders(first, last) for name, (first, last) in spans.items()}
