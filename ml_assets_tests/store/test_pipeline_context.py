"""Whether the newest study's winner is adopted, told by records alone: nothing is trained."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from ml_assets.graph.code_version import code_version_of
from ml_assets.spec.load import load_spec
from ml_assets.spec.study_record import parted_by
from ml_assets.store.pipeline_context import Pipeline, open_pipeline
from ml_assets_tests.assets.released_model.recall_walk import Walk
from ml_assets_tests.worlds import deliveries, irises
from ml_assets_tests.worlds.world import World

SEARCH = """\
search:
  adopt: true
  parameters:
    training.learning_rate: {kind: log_float, low: 0.0001, high: 0.1}
"""
WEEK, NEXT, BEFORE = "2024-03-11", "2024-03-18", "2024-03-04"
"""The last partition of the study's window, and its neighbours."""


@dataclass(frozen=True)
class Place:
    """A pipeline with a search, and the store with its records."""

    world: World
    name: str
    walk: Walk

    @property
    def folder(self) -> Path:
        return self.world.pipelines / self.name

    @property
    def pipeline(self) -> Pipeline:
        return open_pipeline(self.name, self.world.settings)

    def set_of(self, digest: str, as_of: str | None = None) -> None:
        """The training set that is published from now on."""
        told = {"digest": digest, "as_of": as_of}
        self.walk.make(f"{self.name}/training_set", digest, attributes=told)

    def study(self, digest: str, as_of: str | None = None) -> None:
        """A study by the spec of now, on a set that is published, with a winner."""
        self.set_of(digest, as_of)
        found = {
            "study": f"{self.name}-study-1",
            "trial": 3,
            "space": "5" * 64,
            "values": {"training.learning_rate": 0.05},
            "split": parted_by(load_spec(self.folder)),
            "as_of": as_of,
            "data": digest,
        }
        self.walk.make(f"{self.name}/hyperparameter_search", "d" * 64, attributes=found)

    def edit(self, was: str, is_now: str) -> None:
        spec = self.folder / "defs.yaml"
        assert was in spec.read_text()
        spec.write_text(spec.read_text().replace(was, is_now))

    @property
    def rate(self) -> float:
        """What a model is trained by: 0.05 is the winner's, 0.01 the spec's own."""
        return self.pipeline.spec.training.learning_rate


def place(root: Path, name: str) -> Place:
    world = World(root)
    planted = {"irises": irises, "deliveries": deliveries}[name]
    planted.plant(world.pipelines, world.sources)
    (world.pipelines / name / "search.yaml").write_text(SEARCH)
    return Place(world, name, Walk(Path(world.settings.snapshots)))


RANDOM = "{kind: random, validation: 0.2, holdout: 0.3}"
GROUPS = "{kind: stratified_group, groups: [flower], validation: 0.2, holdout: 0.3}"
WINDOW = "{kind: time, train: 6, validation: 1, holdout: 2, embargo: 1}"
BY_GROUP = "{kind: time+group, train: 6, validation: 1, holdout: 2, embargo: 1, groups: [depot]}"


@pytest.mark.parametrize(
    ("name", "was", "is_now"),
    [
        ("irises", "validation: 0.2, holdout: 0.3", "validation: 0.2, holdout: 0.4"),
        ("irises", "validation: 0.2, holdout: 0.3", "validation: 0.3, holdout: 0.3"),
        ("irises", RANDOM, GROUPS),
        ("irises", RANDOM, RANDOM.replace("random", "time")),
        ("irises", "epochs: 30", "seed: 5"),
        ("irises", "\n    key: [flower]\n    decision_at", "\n    key: [species]\n    decision_at"),
        ("deliveries", "train: 6, validation: 1", "train: 5, validation: 2"),
        ("deliveries", "validation: 1, holdout: 2", "validation: 1, holdout: 1"),
        ("deliveries", WINDOW, BY_GROUP),
        ("deliveries", "cadence: weekly", "cadence: daily"),
    ],
)
def test_a_winner_of_another_split_is_not_adopted_and_a_study_is_due(
    tmp_path: Path, name: str, was: str, is_now: str
) -> None:
    found = place(tmp_path, name)
    found.study("a" * 64, WEEK if name == "deliveries" else None)
    assert (found.rate, found.pipeline.set_aside) == (0.05, "")
    stages = ("training_set", "hyperparameter_search")
    versions = [code_version_of(found.pipeline, stage) for stage in stages]
    found.edit(was, is_now)
    assert found.rate == 0.01
    said = found.pipeline.set_aside
    assert said.startswith(f"trial 3 of {name}-study-1 is not adopted; the spec's own values are")
    assert "another split" in said and said.endswith(f"ml-assets run {name} --search")
    for stage, version in zip(stages, versions, strict=True):
        assert code_version_of(found.pipeline, stage) != version, "or a search mends nothing"


def test_a_winner_is_adopted_where_data_grows_under_the_same_split(tmp_path: Path) -> None:
    drawn, cut = place(tmp_path / "drawn", "irises"), place(tmp_path / "cut", "deliveries")
    drawn.study("a" * 64)
    drawn.set_of("b" * 64)
    cut.study("a" * 64, WEEK)
    cut.set_of("b" * 64, NEXT)
    drawn.edit("epochs: 30", "epochs: 31")  # decides nothing on the rows
    cut.edit("train: 6", "train: 5")  # the window is cut from its end
    assert drawn.rate == cut.rate == 0.05


def test_a_winner_of_a_later_window_is_not_adopted(tmp_path: Path) -> None:
    found = place(tmp_path, "deliveries")
    found.study("a" * 64, WEEK)
    assert found.pipeline.with_winner(NEXT).winner
    asked = found.pipeline.with_winner(BEFORE)
    assert asked.winner is None
    found.set_of("b" * 64, BEFORE)
    assert found.rate == 0.01
    assert found.pipeline.set_aside == asked.set_aside
    assert f"as of {WEEK}" in asked.set_aside
    assert asked.set_aside.endswith(f"ml-assets run deliveries --search --as-of {BEFORE}")
    found.set_of("c" * 64, NEXT)
    assert found.rate == 0.05


def test_a_winner_counts_only_for_its_own_rows_where_entities_move(tmp_path: Path) -> None:
    found = place(tmp_path, "irises")
    found.edit(RANDOM, GROUPS)
    found.study("a" * 64)
    assert found.rate == 0.05
    found.set_of("b" * 64)
    assert found.rate == 0.01
    assert "was on another training set" in found.pipeline.set_aside


def test_a_study_that_does_not_say_its_split_has_no_winner(tmp_path: Path) -> None:
    found = place(tmp_path, "irises")
    found.set_of("a" * 64)
    values = {"training.learning_rate": 0.05}
    old = {"study": "irises-study-1", "trial": 3, "space": "5" * 64, "values": values}
    found.walk.make("irises/hyperparameter_search", "d" * 64, attributes=old)
    assert found.rate == 0.01
    assert "another split" in found.pipeline.set_aside


def test_a_winner_that_the_space_does_not_hold_is_told_as_one(tmp_path: Path) -> None:
    found = place(tmp_path, "irises")
    found.study("a" * 64)
    search = found.folder / "search.yaml"
    search.write_text(search.read_text().replace("high: 0.1", "high: 0.02"))
    assert found.rate == 0.01
    assert "search.yaml does not hold its values" in found.pipeline.set_aside
