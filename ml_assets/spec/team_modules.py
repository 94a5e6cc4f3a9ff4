"""Imports a team's files, each with the modules beside it, from any number of folders.

Every state of a folder is a package of its own: ``import helpers`` in one pipeline finds its own
``helpers.py`` and no other's, and an edited file is imported anew.
"""

import builtins
import importlib
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from ml_assets.errors import SpecError, did_you_mean, quoted
from ml_assets.spec.base import digest_of
from ml_assets.spec.reached_code import closure

_PREFIX = "ml_assets_team_"


def import_file(folder: Path, file_name: str, pipeline: str) -> ModuleType:
    """A file of a pipeline's folder as a module: the same one until it or what it imports changes.

    Raises:
        SpecError: it cannot be imported; of what is missing the name, the line and what is there.
    """
    module = ".".join(Path(file_name).with_suffix("").parts)
    files = [file for file in closure([module], folder=folder).files if folder in file.parents]
    content = digest_of({str(file): file.read_bytes().hex() for file in files})
    package = f"{_PREFIX}{pipeline}_{content[:12]}"
    name = f"{package}.{module}"
    if name not in sys.modules:
        _add_package(package, folder)
        try:
            importlib.import_module(name)
        except Exception as error:  # a team's file may raise anything
            _forget(package)
            raise _refusal(folder, folder / file_name, package, error) from error
    return sys.modules[name]


def is_team_module(name: str) -> bool:
    """Return whether a module was imported from a team's folder, by its name."""
    return name.startswith(_PREFIX)


def _add_package(package: str, folder: Path) -> None:
    importlib.invalidate_caches()
    if not any(isinstance(one, _TeamFinder) for one in sys.meta_path):
        sys.meta_path.insert(0, _TeamFinder())
    parent = ModuleType(package)
    parent.__path__ = [str(folder)]
    sys.modules[package] = parent


def _forget(package: str) -> None:
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{package}.")]:
        del sys.modules[name]


class _TeamFinder(PathFinder):
    """Finds the modules of teams' packages, and no others."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(_PREFIX):
            return None
        found = super().find_spec(fullname, path, target)
        if found is None or not found.has_location:  # a folder without a file
            return found
        if not isinstance(found.loader, SourceFileLoader):
            raise ImportError(
                f"{found.origin} is compiled, so nothing can tell by its code what it does. Only"
                " source is imported from a pipeline's folder: put the .py file in its place, or"
                " install it as a package that has a version."
            )
        package = sys.modules[fullname.split(".")[0]]
        found.loader = _TeamLoader(fullname, found.loader.path, Path(package.__path__[0]))
        return found


class _TeamLoader(SourceFileLoader):
    """Runs a file with an ``import`` that looks beside it first."""

    def __init__(self, name: str, path: str, folder: Path) -> None:
        super().__init__(name, path)
        self._folder = folder

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """No compiled copy: Python would take that of a file that is edited twice in one second."""
        raise OSError

    def exec_module(self, module: ModuleType) -> None:
        importing = _import_from(self._folder, module.__name__.split(".")[0])
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": importing}
        super().exec_module(module)


def _import_from(folder: Path, package: str) -> Callable[..., Any]:
    def importing(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        asked = [name, *(f"{name}.{one}" for one in fromlist or ())]
        if level == 0 and any(_is_beside(folder, one) for one in asked):
            found = builtins.__import__(f"{package}.{name}", globals, locals, fromlist or (), 0)
            return found if fromlist else sys.modules[f"{package}.{name.split('.')[0]}"]
        try:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        except ModuleNotFoundError as error:
            top = name.split(".")[0]
            if level or error.name != top:
                raise
            raise ModuleNotFoundError(_missing(folder, top), name=top) from error

    return importing


def _is_beside(folder: Path, module: str) -> bool:
    path = folder.joinpath(*module.split("."))
    return path.with_name(f"{path.name}.py").is_file() or (path / "__init__.py").is_file()


def _missing(folder: Path, name: str) -> str:
    there = sorted(
        {one.stem for one in folder.glob("*.py")}
        | {one.parent.name for one in folder.glob("*/__init__.py")}
    )
    return (
        f"{name!r} is neither a file in {folder} (there is {', '.join(there)}) nor an installed"
        f" package.{did_you_mean(name, there)} Create {name}.py there, correct the name, or install"
        " the package."
    )


def _refusal(folder: Path, file: Path, package: str, error: Exception) -> SpecError:
    name, line = _last_line(folder, error) or (str(file), 1)
    where = f"{name}, line {line}," + ("" if name == str(file) else f" so {file} fails")
    said = str(error).replace(f"{package}.", "")
    if isinstance(error, ModuleNotFoundError):
        return SpecError(f"{where} cannot be imported: {quoted(said)}")
    return SpecError(f"{where} cannot be imported: {type(error).__name__}: {quoted(said)}")


def line_in(folder: Path, error: Exception) -> str:
    """The last line of a folder's files that an error went through, by its path there; empty: it
    went through none."""
    found = _last_line(folder, error)
    return f"{Path(found[0]).relative_to(folder)}, line {found[1]}" if found else ""


def _last_line(folder: Path, error: Exception) -> tuple[str, int | None] | None:
    at = [(one.filename, one.lineno) for one in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        at.append((error.filename or "", error.lineno))
    return next((one for one in reversed(at) if Path(one[0]).is_relative_to(folder)), None)
