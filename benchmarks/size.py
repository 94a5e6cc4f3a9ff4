"""How much there is to read: lines, modules and imports of ``ml_assets/``, and of its tests.

    python benchmarks/size.py

prints a figure a line. The definitions' modules are counted in a fresh interpreter.
"""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from figures import tell

ROOT = Path(__file__).parent.parent
PACKAGE, TESTS = ROOT / "ml_assets", ROOT / "ml_assets_tests"
SERVERS = "servers"
LOADED = """
import sys
from ml_assets.definitions import build
from ml_assets.settings import read_settings
build(read_settings(), "flight_delays")
print(sum(name.split(".")[0] == "ml_assets" for name in sys.modules))
"""


GROWN = (
    "The extras, the launchers and their faults are most of it, and no part was left out for size."
)
FOLD = "Modules with one reader are still to be folded into it, where no test holds them alone."


def main() -> None:
    """Print every figure."""
    modules = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
    trees = {name: ast.parse(path.read_text()) for name, path in modules.items()}
    lines = sum(_lines(path) for path in modules.values())
    imports = sum(_import_lines(tree) for tree in trees.values())
    importers = Counter(
        target for name, tree in trees.items() for target in set(imported(tree, modules, name))
    )
    tell("size_lines", lines, 50_000, why=GROWN)
    tell("size_modules", len(modules), 400, why=GROWN)
    tell("size_modules_loaded_by_definitions", _loaded(), 220)
    alone = list(importers.values()).count(1)
    tell("size_modules_with_one_importer", alone, 80, why=FOLD)
    tell("size_share_of_imports_percent", 100 * imports / lines, 6.5, why=FOLD)
    tell("size_private_names_of_dagster", sum(map(_private, trees.values())), 0)
    tests = [path for path in TESTS.rglob("*.py") if not _of_servers(path)]
    tell("size_lines_of_tests", sum(map(_lines, tests)), 38_000, why=GROWN)


def module_name(path: Path) -> str:
    """``a.b`` of ``a/b.py``; the name of the package of an ``__init__.py``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.Module, modules: dict[str, Path], importer: str) -> Iterator[str]:
    """The modules of ours that a module imports, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else node.module for name in names]
        else:
            continue
        yield from (name for name in names if name in modules and name != importer)


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _import_lines(tree: ast.Module) -> int:
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes)


def _private(tree: ast.Module) -> int:
    """How many imports name a private module of Dagster's packages."""
    found = 0
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        ours = [name for name in names if name.startswith("dagster")]
        found += sum(any(part.startswith("_") for part in name.split(".")) for name in ours)
    return found


def _of_servers(path: Path) -> bool:
    """Whether a test file belongs to one of the tests' servers (Kubernetes' API, lakeFS, S3)."""
    return SERVERS in path.parts or "server" in path.parts


def _loaded() -> int:
    done = subprocess.run([sys.executable, "-c", LOADED], check=True, stdout=subprocess.PIPE)
    return int(done.stdout)


if __name__ == "__main__":
    main()
