"""The source text that guards read: its modules, parsed, and what a node of one says."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
PACKAGE = PROJECT / "ml_assets"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file, parsed."""

    path: str
    """Relative to the package's folder, with forward slashes."""
    text: str
    tree: ast.Module

    @cached_property
    def nodes(self) -> tuple[Any, ...]:
        return tuple(ast.walk(self.tree))

    def functions(self) -> Iterator[Function]:
        return (node for node in self.nodes if isinstance(node, Function))

    @cached_property
    def calls(self) -> tuple[tuple[ast.Call, str], ...]:
        """Every call with the dotted name of what is called (``datetime.now``)."""
        calls = (node for node in self.nodes if isinstance(node, ast.Call))
        return tuple((call, ast.unparse(call.func)) for call in calls)


Guard = Callable[[Path], list[str]]


def modules(package: Path) -> list[Module]:
    """All Python files below ``package``; the text of each is parsed once a process."""
    return [
        _parsed(file.relative_to(package).as_posix(), file.read_text())
        for file in sorted(package.rglob("*.py"))
    ]


@cache
def _parsed(path: str, text: str) -> Module:
    return Module(path, text, ast.parse(text, path))


def is_a_command(path: str) -> bool:
    return path.startswith("extras/") and path.endswith("/command.py")


def imported_names(node: ast.AST) -> list[str]:
    """Dotted names; ``from a import b`` gives ``a.b``, which may be a module or not."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def is_literally(node: ast.expr | None, value: bool) -> bool:
    """Whether an argument is literally True, or False."""
    return isinstance(node, ast.Constant) and node.value is value
