"""Guards over what is written down: declared fields, pins, imports in texts, paths of a machine."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from ml_assets_tests.guards.source_text import modules

PIN = re.compile(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*")
_TEXT_IMPORT = re.compile(r"^ *from (ml_assets(?:_tests)?[\w.]*) import ([\w, ]+?) *$", re.M)


def unread_fields(model: type[BaseModel], package: Path) -> list[str]:
    """Declared fields of ``model``, and of all models in it, that no engine code reads by name.

    The files that declare fields do not count as readers; ``spec/partitions.py`` is engine code.
    """
    read = {
        name
        for module in modules(package)
        if not module.path.startswith("spec/") or module.path == "spec/partitions.py"
        for node in module.nodes
        for name in _names_read(node)
    }
    return sorted(
        f"{part.__name__}.{field}"
        for part in models_within(model)
        for field in part.model_fields
        if field not in read
    )


def models_within(model: type[BaseModel]) -> set[type[BaseModel]]:
    """``model`` and every model that its fields hold, at any depth."""
    found: set[type[BaseModel]] = set()
    waiting: list[Any] = [model]
    while waiting:
        here = waiting.pop()
        if isinstance(here, type) and issubclass(here, BaseModel):
            if here not in found:
                found.add(here)
                waiting += [field.annotation for field in here.model_fields.values()]
        else:
            waiting += get_args(here)
    return found


def text_imports(file: Path) -> Iterator[tuple[str, list[str]]]:
    """What the texts of a module import from us, were they run: module, and names."""
    for node in ast.walk(ast.parse(_text(file))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for module, names in _TEXT_IMPORT.findall(node.value):
                yield module, [name.split(" as ")[0].strip() for name in names.split(",")]


def workplace_paths(files: list[Path]) -> list[str]:
    """Absolute paths of the machine that the code was written on."""
    roots = ("work", "root", "opt/pypi", "opt/wheels", "home/[a-z]+")
    pattern = re.compile(rf"(?<![\w.~/-])/(?:{'|'.join(roots)})/")
    return [
        f"{file}:{number} {line.strip()[:80]}"
        for file in files
        for number, line in enumerate(_text(file).splitlines(), 1)
        if pattern.search(line)
    ]


def _names_read(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        return [node.attr]
    if isinstance(node, ast.MatchClass):
        return node.kwd_attrs
    return []


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except UnicodeDecodeError:
        return ""
