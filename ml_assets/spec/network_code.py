"""The code of a team's network: its files, and their imports from elsewhere.

It goes with every request that runs the network, so that a pod has the code of the pipeline's
folder. Its digest is of the files' syntax, and of the versions of the installed packages that they
import: a comment or another layout is the same code.
"""

import ast
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from ml_assets.errors import SpecError
from ml_assets.spec.base import Frozen, digest_of
from ml_assets.spec.paths import inside
from ml_assets.spec.reached_code import PACKAGE, closure, installed, syntax_digest
from ml_assets.spec.training import Module

OF_OURS = "ml_assets.training.models.layers"
"""The one module of this package that a network may import: entity embeddings."""
_OF_THE_PROGRAM = {"numpy", "safetensors", "torch", PACKAGE.name}
"""Packages that a session names by itself, or that decide no number."""
_MOST_BYTES = 1_000_000
"""The most that the files have together: they travel as text in each request."""


class NetworkCode(Frozen):
    """All that a team's network is made of."""

    files: dict[Annotated[str, AfterValidator(inside)], str] = Field(min_length=1)
    """Path below the pipeline's folder -> text."""
    packages: dict[str, str] = Field(default_factory=dict)
    """Installed package, as it is imported -> its distribution and version: ``einops 0.8.1``."""

    @property
    def digest(self) -> str:
        """SHA-256 of what runs."""
        return digest_of({"files": self._syntax, "packages": self.packages})

    @property
    def parts(self) -> dict[str, str]:
        """File -> digest of its syntax; installed package -> distribution and version."""
        return {**self._syntax, **self.packages}

    @property
    def _syntax(self) -> dict[str, str]:
        return {name: syntax_digest(text) for name, text in self.files.items()}


def code_folder(beside: Path, code: NetworkCode) -> Path:
    """Return where the code of a request is written, beside its events."""
    return (beside / "network" / code.digest[:12]).resolve()


def read_network(folder: Path, model: Module) -> NetworkCode:
    """The code that a model names, as it is in the pipeline's folder now.

    Raises:
        SpecError: a file is missing or leads out of the folder, a package is not installed, or a
            file imports of this package what no network may.
    """
    files = _files(folder, model)
    texts = {file.relative_to(folder).as_posix(): _text(folder, file) for file in files}
    size = sum(len(text.encode()) for text in texts.values())
    if size > _MOST_BYTES:
        raise SpecError(
            f"The code of model.module {model.module!r} has {size:,} bytes, {_MOST_BYTES:,} at "
            "most can be sent with a request. Move what is not code elsewhere."
        )
    for name, text in texts.items():
        _require_own_imports(folder / name, text)
    modules = [_module(name) for name in texts]
    found = closure(modules, stops=[PACKAGE.name], folder=folder).packages
    return NetworkCode(
        files=texts,
        packages={name: _version(name) for name in found if name not in _OF_THE_PROGRAM},
    )


def _files(folder: Path, model: Module) -> list[Path]:
    """The files that run when the functions are imported: a file with all that it imports."""
    names = {function.split(":")[0] for function in model.functions}
    for name in names:
        if not (folder / name).is_file():
            raise SpecError(
                f"The model names {folder / name}, which is not there. Create it, or correct"
                " model.module, loss, parameter_groups or augmentation."
            )
    known: set[str] = set()
    while names != known:  # what is taken from a file need not mention all that the file imports
        known = names
        found = closure([_module(n) for n in sorted(known)], stops=[PACKAGE.name], folder=folder)
        names = known | {file.relative_to(folder).as_posix() for file in found.files}
        above = {parent / "__init__.py" for name in names for parent in Path(name).parents}
        names |= {
            one.as_posix() for one in above if len(one.parts) > 1 and (folder / one).is_file()
        }
    return [folder / name for name in sorted(names)]


def _module(name: str) -> str:
    parts = Path(name).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _text(folder: Path, file: Path) -> str:
    if not file.resolve().is_relative_to(folder.resolve()):
        raise SpecError(
            f"{file} leads out of {folder} through a symbolic link: put the file itself there."
        )
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{file} cannot be read as text: {error}") from error


def _require_own_imports(file: Path, text: str) -> None:
    """A network runs wherever the training program runs: of this package it may take layers."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # importing it says why
        return
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        for name in names:
            if name.split(".")[0] == PACKAGE.name and name != OF_OURS:
                raise SpecError(
                    f"{file}, line {getattr(node, 'lineno', 1)}, imports {name}: of "
                    f"{PACKAGE.name} a network may import only {OF_OURS}. Put what it needs into "
                    "its own file."
                )


def _version(package: str) -> str:
    found = installed(package)
    if " " not in found:
        raise SpecError(
            f"The network imports {package!r}, which is neither a file in the pipeline's folder nor"
            f" an installed package. Create {package}.py there, correct the name, or install it:"
            " its version is part of the model's code."
        )
    return found


def missing_packages(code: NetworkCode) -> str:
    """Say which packages are not here as the code was read with; empty: all are."""
    wrong = [
        f"{told} is needed, here is {installed(name) if ' ' in installed(name) else 'none'}"
        for name, told in code.packages.items()
        if installed(name) != told
    ]
    return "; ".join(wrong)
