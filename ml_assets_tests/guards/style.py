"""Guards over size and style: each returns what breaks a rule, one line a finding."""

import ast
from pathlib import Path

from ml_assets_tests.guards.source_text import Function, is_a_command, modules

FUNCTION_LINES = 60
FUNCTION_LINES_P95 = 40
MODULE_LINES = 400

_FORBIDDEN_STEMS = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}
_EVALUATED_ANNOTATIONS = (
    "assets/",
    "adapters/",
    "automation/",
    "component.py",
    "extras/",
)
_NAIVE = {"utcnow", "utcfromtimestamp", "today"}


def long_functions(package: Path) -> list[str]:
    return [
        f"{module.path}:{function.lineno} {function.name} has {_lines(function)} lines"
        for module in modules(package)
        for function in module.functions()
        if _lines(function) > FUNCTION_LINES
    ]


def too_many_long_functions(package: Path) -> list[str]:
    """The 95th percentile over the whole package, not one function's length."""
    sized = sorted(
        (_lines(function), f"{module.path}:{function.lineno} {function.name}")
        for module in modules(package)
        for function in module.functions()
    )
    over = [f"{name} has {lines} lines" for lines, name in sized if lines > FUNCTION_LINES_P95]
    return over if len(over) > 0.05 * len(sized) else []


def long_modules(package: Path) -> list[str]:
    return [
        f"{module.path} has {count} lines"
        for module in modules(package)
        if (count := len(module.text.splitlines())) > MODULE_LINES
    ]


def missing_annotations(package: Path) -> list[str]:
    return [
        f"{module.path}:{function.lineno} {function.name}: {', '.join(missing)}"
        for module in modules(package)
        for function in module.functions()
        if (missing := _unannotated(function))
    ]


def missing_docstrings(package: Path) -> list[str]:
    return [
        module.path
        for module in modules(package)
        if module.text.strip() and not ast.get_docstring(module.tree)
    ]


def bare_raises(package: Path) -> list[str]:
    return [
        f"{module.path}:{node.lineno} raises {name}"
        for module in modules(package)
        for node in module.nodes
        if isinstance(node, ast.Raise) and node.exc is not None
        for name in [_raised(node.exc)]
        if name in {"RuntimeError", "Exception", "BaseException"}
    ]


def prints(package: Path) -> list[str]:
    return [
        f"{module.path}:{call.lineno} prints"
        for module in modules(package)
        if not module.path.startswith("cli/") and not is_a_command(module.path)
        for call, name in module.calls
        if name == "print"
    ]


def naive_times(package: Path) -> list[str]:
    """``datetime.now()`` without a zone and its like; ``time.time`` (use ``time.monotonic``)."""
    return [
        f"{module.path}:{call.lineno} {name}()"
        for module in modules(package)
        for call, name in module.calls
        if _is_naive(call, name)
    ]


def postponed_annotations(package: Path) -> list[str]:
    """Dagster reads annotations at run time in these rooms."""
    return [
        f"{module.path}:{node.lineno} from __future__ import annotations"
        for module in modules(package)
        if module.path.startswith(_EVALUATED_ANNOTATIONS)
        for node in module.nodes
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
    ]


def shapeless_names(package: Path) -> list[str]:
    """A file or folder whose name says only that something had no place."""
    return [
        module.path
        for module in modules(package)
        for part in Path(module.path).with_suffix("").parts
        if _FORBIDDEN_STEMS & set(part.split("_"))
    ]


def unseen_folders(package: Path) -> list[str]:
    """Folders without ``__init__.py``: import-linter would not see what they import.

    A team's folder needs none (its modules are imported by path): see ``nosy_pipelines``.
    """
    folders = {file.parent for file in package.rglob("*.py")} - {package}
    return sorted(
        folder.relative_to(package).as_posix()
        for folder in folders
        if not (folder / "__init__.py").exists() and folder.parent != package / "pipelines"
    )


def _lines(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def _unannotated(function: Function) -> list[str]:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    named += [star for star in (arguments.vararg, arguments.kwarg) if star]
    missing = [
        argument.arg
        for place, argument in enumerate(named)
        if argument.annotation is None and not (place == 0 and argument.arg in {"self", "cls"})
    ]
    return missing if function.returns else [*missing, "return"]


def _raised(node: ast.expr) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node)


def _is_naive(call: ast.Call, name: str) -> bool:
    owner, _, method = name.rpartition(".")
    if name == "time.time":
        return True
    if owner.rpartition(".")[2] not in {"datetime", "date"}:
        return False
    zone = any(keyword.arg in {"tz", "tzinfo"} for keyword in call.keywords)
    if method == "now":
        return not call.args and not zone
    if method == "fromtimestamp":
        return len(call.args) < 2 and not zone
    return method in _NAIVE
