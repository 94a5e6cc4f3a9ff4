"""Guards over what may be imported and read where; the layers are import-linter's."""

import ast
import re
from pathlib import Path

from ml_assets_tests.guards.source_text import imported_names, is_a_command, modules

_FOR_PIPELINES = ("ml_assets.assets.feature_set.", "ml_assets.spec")
_DAGSTER_ROOMS = ("adapters/", "automation/", "component.py", "definitions.py", "pipelines/")
_DECLARES = ("/asset.py", "/checks.py", "/entry.py")
_READS_SETTINGS = (
    "cli/",
    "adapters/",
    "component.py",
    "definitions.py",
    "actions/read_table.py",
    "extras/online/features.py",
    "assets/released_model/predict.py",
)
"""Where a process begins, and what a notebook or a service calls with a pipeline's name alone."""


def nosy_pipelines(package: Path) -> list[str]:
    """Imports of a team's folder from the engine, other than from the rooms meant for it."""
    return [
        f"{module.path}:{node.lineno} imports {name}"
        for module in modules(package)
        if module.path.startswith("pipelines/")
        for node in module.nodes
        for name in imported_names(node)
        if name.startswith("ml_assets.") and not name.startswith(_FOR_PIPELINES)
    ]


def private_names_of_dagster(package: Path) -> list[str]:
    """What Dagster may change without a word: a module or a name that begins with ``_``."""
    return [
        f"{module.path}: {name}"
        for module in modules(package)
        for node in module.nodes
        for name in _qualified(node)
        if re.match(r"(dagster|dg)\w*\.(.*\.)?_[a-z]", name)
    ]


def dagster_elsewhere(package: Path) -> list[str]:
    """Dagster is imported where assets are declared, and by the room of its adapters."""
    return [
        f"{module.path}:{node.lineno} imports {name}"
        for module in modules(package)
        if not module.path.startswith(_DAGSTER_ROOMS)
        if not (module.path.startswith(("assets/", "extras/")) and module.path.endswith(_DECLARES))
        for node in module.nodes
        for name in imported_names(node)
        if re.match(r"dagster\w*(\.|$)", name)
    ]


def settings_elsewhere(package: Path) -> list[str]:
    """The environment is read where a process begins, and handed down as settings from there."""
    return [
        f"{module.path}:{node.lineno} reads the settings of the environment"
        for module in modules(package)
        if not module.path.startswith(_READS_SETTINGS) and not is_a_command(module.path)
        for node in module.nodes
        if isinstance(node, ast.Call) and not node.args and not node.keywords
        if isinstance(node.func, ast.Name) and node.func.id == "read_settings"
    ]


def stray_environment_reads(package: Path) -> list[str]:
    """ML_ASSETS_* is read in settings/ and nowhere else."""
    reads = {"os.environ.get", "os.getenv", "os.environ.setdefault", "os.environ.pop"}
    found = []
    for module in modules(package):
        if module.path.startswith("settings/"):
            continue
        names = [
            (call.lineno, call.args[0])
            for call, name in module.calls
            if name in reads and call.args
        ]
        names += [
            (node.lineno, node.slice)
            for node in module.nodes
            if isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Load)
            and ast.unparse(node.value) == "os.environ"
        ]
        found += [
            f"{module.path}:{line} reads {name.value}"
            for line, name in names
            if isinstance(name, ast.Constant) and str(name.value).startswith("ML_ASSETS_")
        ]
    return found


def _qualified(node: ast.AST) -> list[str]:
    """Every name that an import or an attribute reaches, with the modules before it."""
    return [ast.unparse(node)] if isinstance(node, ast.Attribute) else imported_names(node)
