"""The composition root: settings -> resources -> every pipeline -> one Definitions."""

import sys
import warnings
from pathlib import Path
from types import ModuleType

import dagster as dg

from ml_assets.automation import alerts, housekeeping
from ml_assets.resources.executor import executor
from ml_assets.resources.launcher import LauncherResource
from ml_assets.resources.objects import ObjectsResource
from ml_assets.resources.online import OnlineResource
from ml_assets.resources.snapshots import SnapshotsResource
from ml_assets.resources.sources import SourcesResource
from ml_assets.resources.tracking import TrackingResource
from ml_assets.settings import Settings, read_settings
from ml_assets.spec.load import find_pipeline, load_spec, pipeline_folders

# what is used of Dagster's beta API is held by tests; the warnings would bury the run's own words
warnings.filterwarnings("ignore", category=dg.BetaWarning)

PROJECT = Path(__file__).parent.parent


def build(settings: Settings, only: str | None = None) -> dg.Definitions:
    """Every pipeline in the package's room and in ML_ASSETS_PIPELINES, with their resources.

    Args:
        only: the one pipeline that is needed: no other is read, so none that is broken is in the
            way.

    Raises:
        SpecError: a spec is wrong; the message begins with the pipeline's name.
    """
    known = pipeline_folders(settings)
    wanted = known.values() if only is None else [find_pipeline(known, only)]
    pipelines = [_load(folder) for folder in wanted]
    shared = dg.Definitions(resources=resources(), executor=executor(settings.launcher))
    ours = [housekeeping.definitions(), alerts.definitions(settings)]
    return dg.Definitions.merge(*pipelines, *ours, shared)


def resources() -> dict[str, object]:
    """The adapters, which read the settings when they are used.

    None takes any configuration, Dagster's own keeper of values included: what a run reads, writes
    and decides on is chosen by the settings alone.
    """
    return {
        "snapshots": SnapshotsResource(),
        "objects": ObjectsResource(),
        "online": OnlineResource(),
        "sources": SourcesResource(),
        "launcher": LauncherResource(),
        "tracking": TrackingResource(),
        "io_manager": dg.IOManagerDefinition(resource_fn=_values, config_schema={}),
    }


def _values(context: dg.InitResourceContext) -> dg.IOManager:
    """For teams' own assets that return values; ours return none."""
    assert context.instance is not None
    folder = context.instance.storage_directory()
    return dg.FilesystemIOManager(base_dir=folder).create_io_manager(context)


def _load(folder: Path) -> dg.Definitions:
    load_spec(folder)  # all mistakes at once, each with its remedy, before Dagster's own report
    # a tree of its own: a ComponentTree parses every file under its root before it builds one
    return dg.ComponentTree(defs_module=_package(folder), project_root=PROJECT).build_defs(folder)


def _package(folder: Path) -> ModuleType:
    """A package over a pipeline's folder: a ComponentTree needs a module to stand on."""
    name = f"ml_assets_pipeline_{abs(hash(folder))}"
    module = ModuleType(name)
    module.__path__ = [str(folder)]
    module.__file__ = str(folder / "__init__.py")
    sys.modules[name] = module
    return module


@dg.definitions
def defs() -> dg.Definitions:
    """What Dagster loads."""
    return build(read_settings())
