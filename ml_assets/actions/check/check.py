"""Finds every mistake in a pipeline's folder, and what keeps it from training; runs nothing."""

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from ml_assets.actions.check.columns import (
    column_mistakes,
    not_judged,
    number_words,
    schema_of,
)
from ml_assets.actions.check.spot_machines import (
    StateSize,
    judge_spot,
    state_size,
    world_and_room,
)
from ml_assets.assets.drift_report.blind_spots import blind_spots
from ml_assets.assets.feature_set.decode import on_engine
from ml_assets.assets.feature_set.feature_function import load_function
from ml_assets.assets.raw_snapshot.readers.arrived_files import look_at_files
from ml_assets.assets.raw_snapshot.readers.pattern import pattern_of
from ml_assets.assets.raw_snapshot.sources import Sources
from ml_assets.assets.trained_model.initial_weights import initial_file
from ml_assets.assets.training_set.shards import load_schema
from ml_assets.assets.training_set.window import require_enough
from ml_assets.assets.validated_table.contract.compiled import contract_mistakes
from ml_assets.assets.validated_table.contract.expectations import is_installed, needs_engine
from ml_assets.assets.validated_table.contract.suite import contract_of, told_mistakes
from ml_assets.errors import (
    ContractError,
    DoesNotFit,
    MlAssetsError,
    SpecError,
    StorageError,
    install,
)
from ml_assets.launch.kubernetes.api import KubernetesApi
from ml_assets.settings import SQL_PREFIX, Settings, is_s3, read_cluster
from ml_assets.spec.ensemble import weights_file
from ml_assets.spec.gates import FunctionBaseline
from ml_assets.spec.load import (
    OWN_ASSETS,
    SPEC_FILE,
    Mistake,
    check_spec,
    line_of,
    other_name,
)
from ml_assets.spec.memory_estimate import require_fits
from ml_assets.spec.network_code import read_network
from ml_assets.spec.partitions import why_in_no_partition, windows
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.search import check_search
from ml_assets.spec.sources import (
    DeltaSource,
    EventsSource,
    FilesSource,
    IcebergSource,
    SqlSource,
)
from ml_assets.spec.training import COUNTED, Boosted, Module
from ml_assets.spec.training_program import Ref
from ml_assets.store.layout import Address, read_record
from ml_assets.store.open import has_snapshots, open_objects, open_snapshots
from ml_assets.store.pipeline_context import Pipeline
from ml_assets.store.snapshots import MAIN


def check_folder(folder: Path) -> tuple[str, ...]:
    """All mistakes of the spec; when it is right, of the files that it names."""
    spec, mistakes = check_spec(folder)
    if spec is None:
        return tuple(str(mistake) for mistake in mistakes)
    return tuple(str(mistake) for mistake in _file_mistakes(folder, spec))


def all_mistakes(folder: Path, settings: Settings) -> tuple[str, ...]:
    """The mistakes of ``check_folder``, and what keeps a right spec from training here."""
    spec, mistakes = check_spec(folder)
    if spec is None:
        return tuple(str(mistake) for mistake in mistakes)
    named = _file_mistakes(folder, spec)
    if not {mistake.key for mistake in named} & _called(spec):
        named += column_mistakes(folder, spec, settings)
    return (
        *map(str, named),
        *_own_mistakes(folder, spec),
        *map(str, _window_mistakes(folder, spec, settings)),
        *map(str, _spot_mistakes(folder, spec, settings)),
        *map(str, _memory_mistakes(folder, spec, settings)),
    )


def not_looked_at(folder: Path) -> str:
    """Return what the mistakes of a folder keep ``all_mistakes`` from; empty: nothing."""
    spec, _ = check_spec(folder)
    again = f"first, then run ml-assets check {folder.name} again"
    if spec is None:
        named = "the contracts, the functions and the other files that the spec names"
        return f"{named} were not looked at: correct {SPEC_FILE} {again}"
    if {mistake.key for mistake in _file_mistakes(folder, spec)} & _called(spec):
        return f"no function was called, so its columns were not looked at: correct it {again}"
    return ""


def _called(spec: PipelineSpec) -> set[str]:
    """The keys of the spec without which its functions cannot be called."""
    return {*_functions(spec), "features.engine"}


def _own_mistakes(folder: Path, spec: PipelineSpec) -> tuple[str, ...]:
    """What is refused of the assets and checks that a team declares beside a right spec."""
    if not (folder / OWN_ASSETS).is_file():
        return ()
    from ml_assets.component import own_assets  # loads every stage: only where it is asked for

    try:
        own_assets(folder, spec.name)
    except MlAssetsError as error:
        return (str(error),)
    return ()


def missing_here(folder: Path, settings: Settings) -> tuple[str, ...]:
    """Return what a right spec needs and this machine lacks. It may still be trained elsewhere."""
    spec, _ = check_spec(folder)
    if spec is None:
        return ()
    found = [
        f"{asks}, and {package} is not installed here: a run would fail\n    remedy:"
        f" {install(extra)}"
        for asks, package, extra in _optional_packages(spec, settings)
        if importlib.util.find_spec(package) is None
    ]
    if spec.training.compile and not _has_compiler():
        found.append(
            "training.compile is true, and there is no C++ compiler here (CXX, g++, clang++):"
            " training would fail here\n    remedy: install one (apt-get install g++), or"
            " remove training.compile"
        )
    if not is_installed():
        found += [
            f"the contract {source.contract} of {name} has {types[0]}, which takes Great"
            " Expectations' engine, and the package is not installed here: its table would not be"
            f" published\n    remedy: {install('expectations')}"
            for name, source in spec.sources.items()
            if (types := needs_engine(contract_of(folder, source)))
        ]
    found += [
        f"sources.{name}.connection is {source.connection!r}, and {SQL_PREFIX}{source.connection}"
        " is not set here: the table cannot be read\n    remedy: set it to the database's URL"
        for name, source in spec.sources.items()
        if isinstance(source, SqlSource) and _is_unset(source.connection, settings)
    ]
    return tuple(found)


def _optional_packages(spec: PipelineSpec, settings: Settings) -> Iterator[tuple[str, str, str]]:
    """What asks for a package that not everybody has, the package, and the extra that has it."""
    if isinstance(spec.model, Boosted):
        yield f"model.family is {spec.model.family!r}", spec.model.family, "boosting"
    if spec.features.tokens:
        yield "features.tokens is set", "tokenizers", "language"
    if spec.features.engine:
        yield "features.engine is set", spec.features.engine.kind, spec.features.engine.kind
    for name, source in spec.sources.items():
        if isinstance(source, DeltaSource):
            yield f"sources.{name} is a Delta table", "deltalake", "delta"
        if isinstance(source, IcebergSource):
            yield f"sources.{name} is an Iceberg table", "pyiceberg", "iceberg"
    if is_s3(settings.checkpoints or ""):
        yield f"ML_ASSETS_CHECKPOINTS is {settings.checkpoints}", "boto3", "s3"


def _is_unset(connection: str, settings: Settings) -> bool:
    """Neither is the URL set, nor is the file there that is read without one."""
    default = settings.sources / f"{connection.lower()}.db"
    return connection not in settings.sql and not default.is_file()


def _has_compiler() -> bool:
    return any(map(shutil.which, filter(None, (os.environ.get("CXX"), "g++", "clang++"))))


def warnings_of(folder: Path, settings: Settings) -> tuple[str, ...]:
    """Return what of a right spec may not be meant: places where nothing is, texts for numbers,
    drift that cannot alarm."""
    spec, _ = check_spec(folder)
    if spec is None:
        return ()
    return (
        *_absent_places(spec, settings),
        *_unread_files(spec, settings),
        *not_judged(folder, spec, settings),
        *number_words(folder, spec),
        *blind_spots(Pipeline(spec, folder, settings)),
        *_replaced_canary(spec),
    )


def _replaced_canary(spec: PipelineSpec) -> Iterator[str]:
    """A canary that the next model replaces before its rows are there."""
    canary, landing = spec.release.canary, spec.automation.landing
    if canary != "none" and canary.periods > 1 and landing is not None and landing.retrain:
        yield (
            f"release.canary.periods is {canary.periods}, and automation.landing.retrain trains a"
            " model for each new partition. Each takes the place of the one in canary before its"
            f" {canary.periods} partitions are there, so none reaches {spec.release.to}"
            "\n    remedy: set periods to 1, or train less often: automation.refresh, not retrain"
        )


def _absent_places(spec: PipelineSpec, settings: Settings) -> tuple[str, ...]:
    """The places of its sources that are not on this machine."""
    root = settings.sources
    places = {
        name: (source.path, _place(source, root))
        for name, source in spec.sources.items()
        if isinstance(source, FilesSource | EventsSource | DeltaSource) and not is_s3(source.path)
    }
    if places and not root.is_dir():
        return (
            f"ML_ASSETS_SOURCES is {root}, and there is no such folder here: nothing can be read"
            "\n    remedy: set it to the folder of the sources; ml-assets demo makes the demo's",
        )
    return tuple(
        f"sources.{name}.path is {path!r}, and there is no {place} here: nothing can be read"
        f"\n    remedy: correct it; it begins below ML_ASSETS_SOURCES, which is {root}"
        for name, (path, place) in places.items()
        if not place.exists()
    )


def _unread_files(spec: PipelineSpec, settings: Settings) -> Iterator[str]:
    """The files on this machine that are of no partition that has ended."""
    known = windows(spec.partitions, Sources.now())
    for name, source in spec.sources.items():
        if not isinstance(source, FilesSource | EventsSource) or not source.partitioned:
            continue
        if is_s3(source.path) or not _place(source, settings.sources).exists():
            continue
        looked = look_at_files(name, source, settings.sources, known, None, Sources.now())
        for said in why_in_no_partition(spec.partitions, looked.unasked):
            yield f"sources.{name} {said}"


def _place(source: FilesSource | EventsSource | DeltaSource, root: Path) -> Path:
    """What must be there before a partition is: the file that is named, a folder, a table's log."""
    if isinstance(source, DeltaSource):
        return root / source.path / "_delta_log"
    pattern = pattern_of(source.path)
    return root / (pattern.path if pattern.is_one_file else pattern.folder)


def _window_mistakes(folder: Path, spec: PipelineSpec, settings: Settings) -> Iterator[Mistake]:
    """A right spec whose calendar ends before its split has partitions enough."""
    try:
        require_enough(Pipeline(spec, folder, settings))
    except SpecError as error:
        key, file = "partitions.end", folder / SPEC_FILE
        rule = "the calendar has as many partitions as a training needs"
        yield Mistake(file, line_of(file, key), key, str(spec.partitions.end), rule, str(error))


def _spot_mistakes(folder: Path, spec: PipelineSpec, settings: Settings) -> Iterator[Mistake]:
    """A right spec whose saves do not fit the machines that ``training.spot`` describes."""
    if spec.training.spot is None or not isinstance(spec.model, COUNTED):
        return
    verdict = judge_spot(spec.training, _size(spec, settings))
    if verdict.fits:
        return
    rule = "saves fit into the notice, and are frequent enough for a kill without notice"
    value, file = spec.training.spot.model_dump_json(), folder / SPEC_FILE
    line = line_of(file, "training.spot")
    yield Mistake(file, line, "training.spot", value, rule, verdict.reason)


def _memory_mistakes(folder: Path, spec: PipelineSpec, settings: Settings) -> Iterator[Mistake]:
    """A right spec whose training cannot fit this machine, or a pod of the settings' cluster."""
    if not isinstance(spec.model, COUNTED):
        return
    world, room = world_and_room(spec, settings)
    try:
        count = _size(spec, settings).parameters
        tokens = spec.features.tokens
        context = tokens.context if tokens else 1
        require_fits(spec.model, spec.training, world, count, room, context)
    except DoesNotFit as error:
        rule = f"a training fits into the memory of {room.where}"
        value = f"{{width: {spec.model.width}, depth: {spec.model.depth}}}"
        file = folder / SPEC_FILE
        yield Mistake(file, line_of(file, "model"), "model", value, rule, str(error))


def cluster_trouble(settings: Settings) -> str | None:
    """Return why nothing could be trained on the cluster of the settings; None: it can, or there is
    none.

    It is asked, and nothing is made there.
    """
    if settings.launcher != "kubernetes":
        return None
    try:
        KubernetesApi(read_cluster().namespace).require_rights()
    except MlAssetsError as error:
        return str(error)
    return None


def _size(spec: PipelineSpec, settings: Settings) -> StateSize:
    """Counted on the last published training set, where there is one that is still there."""
    if spec.features.tokens or not has_snapshots(settings.snapshots):
        return state_size(spec)
    store = open_snapshots(settings.snapshots)
    address = Address(spec.name, "training_set")
    record = read_record(store, store.resolve(MAIN), address)
    if record is None:
        return state_size(spec)
    try:
        data = Ref(uri=record.attributes["uri"], digest=record.attributes["digest"])
        own = open_objects(settings.objects, settings.cache).own(data, "shards", spec.name)
        columns = load_schema(own).preprocessing
    except StorageError:  # collected since: it is not what is checked here
        return state_size(spec)
    words = {column.name: len(column.vocabulary) for column in columns.categorical}
    if set(words) != set(spec.features.categorical):
        return state_size(spec)  # of features that the spec had before
    return state_size(spec, list(words.values()), len(columns.null_flags))


def _file_mistakes(folder: Path, spec: PipelineSpec) -> list[Mistake]:
    found: list[Mistake] = [*check_search(folder, spec)[1], *other_name(folder, spec)]
    for name, source in spec.sources.items():
        if source.contract is not None:
            held = partial(_require_contract, folder / source.contract, source.columns)
            found += _refused(folder, f"sources.{name}.contract", source.contract, held)
    if begin := weights_file(spec.training.init_from):
        held = partial(initial_file, folder, begin)
        found += _refused(folder, "training.init_from", begin.path, held)
    if isinstance(spec.model, Module):
        held = partial(read_network, folder, spec.model)
        found += _refused(folder, "model.module", spec.model.module, held)
    functions = [
        mistake
        for key, function in _functions(spec).items()
        for mistake in _refused(
            folder, key, function, partial(load_function, folder, function, spec.name)
        )
    ]
    return [*found, *functions, *([] if functions else _engine_mistakes(folder, spec))]


def _require_contract(file: Path, columns: Mapping[str, str]) -> None:
    if wrong := contract_mistakes(file, schema_of(columns)):
        raise ContractError(told_mistakes(file, wrong))


def _engine_mistakes(folder: Path, spec: PipelineSpec) -> Iterator[Mistake]:
    """Why the feature function does not run on its engine."""
    features, key, file = spec.features, "features.engine", folder / SPEC_FILE
    if features.engine is None:
        return
    try:
        build = load_function(folder, features.function, spec.name)
        on_engine(build, features, features.engine, folder)
    except MlAssetsError as error:
        rule = "an engine that is installed, and a function that runs on it"
        yield Mistake(file, line_of(file, key), key, repr(features.engine.kind), rule, str(error))


def _functions(spec: PipelineSpec) -> dict[str, str]:
    """Key of the spec -> the function of the folder that it names."""
    baselines, decode = enumerate(spec.evaluation.baselines), spec.features.decode
    return {
        **{f"tables.{name}.function": table.function for name, table in spec.tables.items()},
        "features.function": spec.features.function,
        **({"features.decode.function": decode.function} if decode else {}),
        **{
            f"evaluation.baselines[{number}].function": one.function
            for number, one in baselines
            if isinstance(one, FunctionBaseline)
        },
    }


def _refused(folder: Path, key: str, value: str, look: Callable[[], object]) -> list[Mistake]:
    """The mistake of a key whose file is not what is expected of it, as a look at it says."""
    try:
        look()
    except MlAssetsError as error:
        rule = "a file in the pipeline's folder that holds what is expected of it"
        file = folder / SPEC_FILE
        return [Mistake(file, line_of(file, key), key, repr(value), rule, str(error))]
    return []
