"""The composition root: settings -> resources -> every pipeline -> one Definitions."""

import gc
import multiprocessing
import traceback
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from toposort import CircularDependencyError

from ml_assets.adapters.executor import executor
from ml_assets.adapters.resources import LauncherResource, StoresResource
from ml_assets.adapters.team_values import own_mlflow
from ml_assets.automation import release_events
from ml_assets.automation.alerts import sensor as alerts
from ml_assets.automation.broken_pipeline import broken_pipeline
from ml_assets.automation.housekeeping import job as housekeeping
from ml_assets.component import OWN_ASSETS, build_pipeline, declared_in, showing
from ml_assets.errors import MlAssetsError, SpecError
from ml_assets.records.tracking.mlflow_server import configure
from ml_assets.settings import Settings, read_settings
from ml_assets.spec.load import SPEC_FILE, find_pipeline, load_spec, pipeline_folders
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.retired import require_active, retired

# what is used of Dagster's beta API is held by tests; the warnings would bury the run's own words
warnings.filterwarnings("ignore", category=dg.BetaWarning)

configure()  # before a team's own code imports mlflow

PROJECT = Path(__file__).parent.parent
_Loaded = Sequence[tuple[Path, dg.Definitions]]


def build(settings: Settings, only: str | None = None) -> dg.Definitions:
    """Every pipeline of ML_ASSETS_PIPELINES that is not retired, with their resources.

    One that cannot be loaded is an asset that says why, and keeps no other from running.

    Args:
        only: the one pipeline that is needed; no other is read.

    Raises:
        SpecError: the one that is needed is wrong (the message begins with its name), or retired.
    """
    known = pipeline_folders(settings)
    shared = [
        housekeeping.definitions(),
        alerts.definitions(settings),
        release_events.definitions(settings),
        dg.Definitions(resources=resources(), executor=executor(settings.launcher)),
    ]
    if only is not None:
        folder = find_pipeline(known, only)
        require_active(settings, only)
        return _without_ring(folder, dg.Definitions.merge(_load(folder), *shared))
    gone = retired(settings)
    wanted = [folder for name, folder in known.items() if name not in gone]
    with _no_collection():
        loaded = [(folder, _load_or_tell(folder)) for folder in wanted]
        whole = dg.Definitions.merge(*(one for _, one in loaded), *shared)
        try:
            _try(whole, wanted)
        except Exception:
            return _without_misfits(loaded, shared)
    return whole


def definitions_of(pipeline: Pipeline) -> dg.Definitions:
    """One pipeline as it is handed over, to be run in this process."""
    shared = dg.Definitions(resources=resources(), executor=dg.in_process_executor)
    return dg.Definitions.merge(build_pipeline(pipeline), shared)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Collect no garbage: what is made stays, and to look at it takes a third of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _load_or_tell(folder: Path) -> dg.Definitions:
    try:
        return _load(folder)
    except Exception as error:  # also what a team's own code raises when it is imported
        return broken_pipeline(folder.name, _words(folder, error))


def _try(definitions: dg.Definitions, folders: Sequence[Path]) -> None:
    """Make what Dagster makes next, and keeps: only assets of a team's own can form a ring."""
    definitions.get_repository_def()
    if any((folder / OWN_ASSETS).is_file() for folder in folders):
        definitions.resolve_implicit_global_asset_job_def()


def _without_ring(folder: Path, definitions: dg.Definitions) -> dg.Definitions:
    try:
        if (folder / OWN_ASSETS).is_file():
            _try(definitions, [folder])
    except (CircularDependencyError, dg.DagsterInvalidDefinitionError) as error:
        raise SpecError(f"{folder.name}: {_words(folder, error)}") from error
    return definitions


def _without_misfits(loaded: _Loaded, shared: Sequence[dg.Definitions]) -> dg.Definitions:
    """Each pipeline that fits to those before it; of any other, what does not.

    Pipelines hardly disturb each other unless they have a name in common: each such group is tried
    by itself. To try all of them for each misfit takes minutes where there are hundreds.
    """
    fitting = (one for group in _groups(loaded) for one in _fitting(group, shared))
    whole = dg.Definitions.merge(*fitting, *shared)
    try:
        _try(whole, [folder for folder, _ in loaded])
    except Exception:
        return dg.Definitions.merge(*_fitting(loaded, shared), *shared)
    return whole


def _fitting(group: _Loaded, shared: Sequence[dg.Definitions]) -> Iterator[dg.Definitions]:
    kept: list[dg.Definitions] = []
    size = 1
    while group:
        batch = group[:size]
        more = [one for _, one in batch]
        try:
            _try(dg.Definitions.merge(*kept, *more, *shared), [folder for folder, _ in batch])
        except Exception as error:
            if len(batch) > 1:
                size = len(batch) // 2
                continue
            yield broken_pipeline(batch[0][0].name, _words(batch[0][0], error))
        else:
            kept += more
            size *= 2  # where most fit, one by one is as slow as all of them each time
        group = group[len(batch) :]
    yield from kept


def _groups(loaded: _Loaded) -> Iterable[_Loaded]:
    """Those that have a name in common, or one each with a third, in their order."""
    leaders, first = [*range(len(loaded))], dict[object, int]()

    def leader(number: int) -> int:
        while leaders[number] != number:
            leaders[number] = number = leaders[leaders[number]]
        return number

    for number, (_, one) in enumerate(loaded):
        for name in _names(one):
            earlier, later = sorted((leader(number), leader(first.setdefault(name, number))))
            leaders[later] = earlier
    groups: dict[int, list[tuple[Path, dg.Definitions]]] = {}
    for number, one in enumerate(loaded):
        groups.setdefault(leader(number), []).append(one)
    return groups.values()


def _names(definitions: dg.Definitions) -> Iterator[object]:
    """What its assets and checks are called, wait for and bring, each known to Dagster once."""
    for one in (*(definitions.assets or ()), *(definitions.asset_checks or ())):
        if isinstance(one, dg.AssetsDefinition):
            yield from (*one.keys, *one.check_keys, *one.resource_defs)
            yield from one.node_keys_by_input_name.values()
            if one.is_executable:
                yield from (node.name for node in one.node_def.iterate_node_defs())
        elif isinstance(one, dg.AssetSpec):
            yield from (one.key, *(dep.asset_key for dep in one.deps))


def _words(folder: Path, error: Exception) -> str:
    """What is wrong; of an error that is not ours also the line of the folder it came from."""
    first: BaseException = error
    while first.__cause__ and not isinstance(first, MlAssetsError):
        first = first.__cause__  # Dagster wraps what a component raises
    if isinstance(first, MlAssetsError):
        return str(first)
    if isinstance(first, CircularDependencyError):
        return f"{folder / OWN_ASSETS}: {_ring(first.data)}"
    frames = traceback.extract_tb(first.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
    where = f"{own[-1].filename}:{own[-1].lineno}" if own else str(folder / SPEC_FILE)
    return f"{where}: {type(first).__name__}: {first}"


def _ring(waiting: Mapping[object, Collection[object]]) -> str:
    found = sorted(
        f"{_name(one)} waits for {', '.join(sorted(map(_name, others)))}"
        for one, others in waiting.items()
    )
    return f"Assets wait for each other: {'; '.join(found)}. Take one out of the other's deps."


def _name(key: object) -> str:
    """An asset or a check as the lineage shows it; an op by its own name."""
    return key.to_user_string() if isinstance(key, dg.AssetKey | dg.AssetCheckKey) else str(key)


def resources() -> dict[str, object]:
    """The adapters, which read the settings when they are used.

    None takes any configuration, Dagster's own keeper of values included: what a run reads, writes
    and decides on is chosen by the settings alone.
    """
    return {
        "stores": StoresResource(),
        "launcher": LauncherResource(),
        "mlflow": dg.ResourceDefinition(resource_fn=own_mlflow, config_schema={}),
        "io_manager": dg.IOManagerDefinition(resource_fn=_values, config_schema={}),
    }


def _values(context: dg.InitResourceContext) -> dg.IOManager:
    """For teams' own assets that return values; ours return none."""
    from ml_assets.adapters.team_values import TeamValues

    assert context.instance is not None
    return TeamValues(Path(context.instance.storage_directory()))


def _load(folder: Path) -> dg.Definitions:
    # as Dagster's loader of components would, which reads the file again, in Python's YAML
    return declared_in(folder, load_spec(folder))


@dg.definitions
def defs() -> dg.Definitions:
    """What Dagster loads.

    A process that a server starts for a run may make every partition of the calendar.
    """
    if multiprocessing.parent_process():
        return build(read_settings())
    with showing():
        return build(read_settings())
