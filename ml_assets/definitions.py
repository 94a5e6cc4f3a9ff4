"""The composition root: settings -> resources -> every pipeline -> one Definitions."""

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import dagster as dg

import ml_assets.pipelines
from ml_assets.automation import housekeeping
from ml_assets.resources.launcher import LauncherResource
from ml_assets.resources.objects import ObjectsResource
from ml_assets.resources.snapshots import SnapshotsResource
from ml_assets.resources.sources import SourcesResource
from ml_assets.resources.tracking import TrackingResource
from ml_assets.settings import Settings, read_settings
from ml_assets.spec.load import folders, load_spec

# what is used of Dagster's beta API is held by tests; the warnings would bury the run's own words
warnings.filterwarnings("ignore", category=dg.BetaWarning)

PROJECT = Path(__file__).parent.parent


def build(settings: Settings) -> dg.Definitions:
    """Every pipeline in the package's room and in ML_ASSETS_PIPELINES, with their resources."""
    packages = [ml_assets.pipelines, *(_synthetic_package(room) for room in settings.pipelines)]
    pipelines = [pipeline for package in packages for pipeline in _load(package)]
    # a process for each step would cost two seconds of imports a step
    shared = dg.Definitions(resources=resources(settings), executor=dg.in_process_executor)
    return dg.Definitions.merge(*pipelines, housekeeping.definitions(), shared)


def resources(settings: Settings) -> dict[str, dg.ConfigurableResource]:
    """The adapters that the settings ask for."""
    return {
        "snapshots": SnapshotsResource(location=settings.snapshots),
        "objects": ObjectsResource(location=settings.objects),
        "sources": SourcesResource(root=str(settings.sources)),
        "launcher": LauncherResource(objects=settings.objects),
        "tracking": TrackingResource(),
    }


def _load(package: ModuleType) -> Iterator[dg.Definitions]:
    """The pipelines of one room, from one tree: a tree reads the YAML of every folder in it."""
    tree = dg.ComponentTree(defs_module=package, project_root=PROJECT)
    for folder in folders(Path(package.__path__[0])):
        load_spec(folder)  # all mistakes at once, each with its remedy, before Dagster's own report
        yield tree.build_defs(folder)


def _synthetic_package(folder: Path) -> ModuleType:
    """A package over a folder outside this one: a ComponentTree needs a module to stand on."""
    name = f"ml_assets_pipelines_{abs(hash(folder))}"
    module = ModuleType(name)
    module.__path__ = [str(folder)]
    module.__file__ = str(folder / "__init__.py")
    sys.modules[name] = module
    return module


@dg.definitions
def defs() -> dg.Definitions:
    """What Dagster loads."""
    return build(read_settings())
