"""A pipeline and the stores that hold what was made of it: where every operation begins."""

from dataclasses import dataclass
from pathlib import Path

from ml_assets.settings import Settings, read_settings
from ml_assets.spec.load import find_pipeline, load_spec, pipeline_folders
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.store.objects import LocalObjects
from ml_assets.store.open import open_objects, open_snapshots
from ml_assets.store.snapshots import SnapshotStore


@dataclass(frozen=True)
class Workplace:
    """One pipeline, with what its records and files lie in."""

    spec: PipelineSpec
    folder: Path
    """Holds the feature function and the contracts that the spec names."""
    store: SnapshotStore
    objects: LocalObjects
    settings: Settings

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def scratch(self) -> Path:
        return self.settings.scratch


def open_pipeline(name: str, settings: Settings | None = None) -> Workplace:
    """Open a pipeline by its name; ``settings`` are read from the environment by default.

    Raises:
        SpecError: there is no such pipeline, or its spec is wrong.
    """
    found = settings or read_settings()
    folder = find_pipeline(pipeline_folders(found), name)
    return Workplace(
        spec=load_spec(folder),
        folder=folder,
        store=open_snapshots(found.snapshots),
        objects=open_objects(found.objects, found.cache),
        settings=found,
    )
