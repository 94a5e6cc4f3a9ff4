"""Everything that can be wrong in a pipeline's folder, found without running it."""

import importlib.util
from pathlib import Path

from ml_assets.assets.initial_weights import initial_file
from ml_assets.errors import MlAssetsError
from ml_assets.features.function import load_function
from ml_assets.spec.load import SPEC_FILE, Mistake, check_spec
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.training import INSTALL_LIGHTGBM, RELEASE, LightGbm
from ml_assets.validation.contract import load_contract


def check_folder(folder: Path) -> tuple[str, ...]:
    """All mistakes of the spec; when it is right, of the files that it names."""
    spec, mistakes = check_spec(folder)
    if spec is None:
        return tuple(str(mistake) for mistake in mistakes)
    return tuple(str(mistake) for mistake in _file_mistakes(folder, spec))


def missing_here(folder: Path) -> tuple[str, ...]:
    """What a right spec needs and this machine lacks; no mistake: it may be trained elsewhere."""
    spec, _ = check_spec(folder)
    if spec is None or not isinstance(spec.model, LightGbm):
        return ()
    if importlib.util.find_spec("lightgbm") is not None:
        return ()
    return (
        "model.family is 'lightgbm', and the package is not installed here: training would fail\n"
        f"    remedy: {INSTALL_LIGHTGBM}",
    )


def _file_mistakes(folder: Path, spec: PipelineSpec) -> list[Mistake]:
    found: list[Mistake] = []
    if spec.name != folder.name:
        rule = "the name of the pipeline is the name of its folder"
        remedy = f"rename the folder, or write 'name: {folder.name}'"
        found.append(Mistake(folder / SPEC_FILE, 1, "name", repr(spec.name), rule, remedy))
    for name, source in spec.sources.items():
        try:
            load_contract(folder / source.contract)
        except MlAssetsError as error:
            key = f"sources.{name}.contract"
            found.append(_named(folder, key, source.contract, error))
    begin = spec.training.init_from
    if begin is not None and begin != RELEASE:
        try:
            initial_file(folder, begin)
        except MlAssetsError as error:
            found.append(_named(folder, "training.init_from", begin, error))
    functions = {f"tables.{name}.function": table.function for name, table in spec.tables.items()}
    for key, function in {**functions, "features.function": spec.features.function}.items():
        try:
            load_function(folder, function, spec.name)
        except MlAssetsError as error:
            found.append(_named(folder, key, function, error))
    return found


def _named(folder: Path, key: str, value: str, error: MlAssetsError) -> Mistake:
    rule = "a file in the pipeline's folder that can be read"
    return Mistake(folder / SPEC_FILE, 1, key, repr(value), rule, str(error))
