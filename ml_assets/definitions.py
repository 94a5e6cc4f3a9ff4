"""The composition root: settings -> resources -> every pipeline -> one Definitions."""

import sys
import warnings
from pathlib import Path
from types import ModuleType

import dagster as dg

import ml_assets.pipelines
from ml_assets.resources.launcher import LauncherResource
from ml_assets.resources.objects import ObjectsResource
from ml_assets.resources.snapshots import SnapshotsResource
from ml_assets.resources.sources import SourcesResource
from ml_assets.resources.tracking import TrackingResource
from ml_assets.settings import Settings, read_settings
from ml_assets.spec.load import SPEC_FILE, load_spec

# what is used of Dagster's beta API is held by tests; the warnings would bury the run's own words
warnings.filterwarnings("ignore", category=dg.BetaWarning)

PROJECT = Path(__file__).parent.parent


def build(settings: Settings) -> dg.Definitions:
    """Every pipeline in the package's room and in ML_ASSETS_PIPELINES, with their resources."""
    packages = [(_room(ml_assets.pipelines), ml_assets.pipelines)]
    packages += [(folder, _synthetic_package(folder)) for folder in settings.pipelines]
    pipelines = [_load(folder, module) for room, module in packages for folder in folders(room)]
    # a process for each step would cost two seconds of imports a step
    shared = dg.Definitions(resources=resources(settings), executor=dg.in_process_executor)
    return dg.Definitions.merge(*pipelines, shared)


def resources(settings: Settings) -> dict[str, dg.ConfigurableResource]:
    """The adapters that the settings ask for."""
    return {
        "snapshots": SnapshotsResource(location=settings.snapshots),
        "objects": ObjectsResource(location=settings.objects),
        "sources": SourcesResource(root=str(settings.sources)),
        "launcher": LauncherResource(objects=settings.objects),
        "tracking": TrackingResource(),
    }


def folders(room: Path) -> list[Path]:
    """The pipeline folders of a room, by name."""
    return sorted(path.parent for path in room.glob(f"*/{SPEC_FILE}"))


def pipeline_folders(settings: Settings) -> dict[str, Path]:
    """Pipeline folder name -> folder, of every room."""
    return {folder.name: folder for room in rooms(settings) for folder in folders(room)}


def rooms(settings: Settings) -> list[Path]:
    """The folders that hold pipelines: the package's own, then ML_ASSETS_PIPELINES."""
    return [_room(ml_assets.pipelines), *settings.pipelines]


def _load(folder: Path, module: ModuleType) -> dg.Definitions:
    load_spec(folder)  # all mistakes at once, each with its remedy, before Dagster's own report
    return dg.ComponentTree(defs_module=module, project_root=PROJECT).build_defs(folder)


def _room(module: ModuleType) -> Path:
    return Path(module.__path__[0])


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
