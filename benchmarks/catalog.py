"""Which benchmarks there are, and what each needs: read from its source, nothing of it is run."""

import ast
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import peers

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Benchmark:
    """A file here that tells figures."""

    name: str
    title: str
    """The first line of its docstring, without how it is called."""
    lacks: tuple[str, ...]
    """What it needs and does not find here, in words."""
    needs: tuple[str, ...] = ()
    """What it says that it needs, here or not, in words; and packages that are not here."""
    without: tuple[str, ...] = ()
    """Other tools that it goes on without, by name."""
    note: str = ""
    """What the page says above its figures."""
    each: str = ""
    """What a figure of one run is, where it takes turns; empty: what that run measured."""
    median_of: int = 1
    """Runs that are kept as their median, unless ``--times`` asks for another number."""

    @property
    def file(self) -> Path:
        return HERE / f"{self.name}.py"


def benchmarks(folder: Path = HERE) -> list[Benchmark]:
    """All of them, by name."""
    return [one for file in sorted(folder.glob("*.py")) if (one := _read(file))]


def _read(file: Path) -> Benchmark | None:
    """A benchmark; None: the file tells no figure."""
    tree = ast.parse(file.read_bytes())
    told = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if not any(isinstance(func, ast.Name) and func.id == "tell" for func in told):
        return None
    first = (ast.get_docstring(tree) or "").partition("\n")[0]
    title = re.split(r": (?:\w+=\S+ )?python ", first)[0].rstrip(".").replace("``", "`")
    packages = sorted({name for name in _imported(tree) if _is_missing(name, file.parent)})
    lacked = [f"package {name}" for name in packages]
    needs: tuple[str, ...] = _literal(tree, "NEEDS")
    return Benchmark(
        file.stem,
        title,
        lacks=(*lacked, *(_said(need) for need in needs if not _is_here(need))),
        needs=tuple(dict.fromkeys((*map(_said, needs), *lacked))),
        without=tuple(name for name in _literal(tree, "PEERS") if not peers.python(name)),
        note=_literal(tree, "NOTE", ""),
        each=_literal(tree, "EACH_IS", ""),
        median_of=_literal(tree, "MEDIAN_OF", 1),
    )


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _is_missing(package: str, folder: Path) -> bool:
    return not (folder / f"{package}.py").is_file() and find_spec(package) is None


def _literal(tree: ast.Module, name: str, default: Any = ()) -> Any:
    """What a benchmark says of itself: ``NEEDS``, ``PEERS``, ``NOTE``, ``EACH_IS`` and so on."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    return default


def _said(need: str) -> str:
    """A need, in words."""
    kind, _, name = need.partition(" ")
    return {"gpu": "a GPU", "cores": f"{name} cores"}.get(kind, need)


def _is_here(need: str) -> bool:
    kind, _, name = need.partition(" ")
    match kind:
        case "gpu":
            return Path("/dev/nvidia0").exists()
        case "cores":
            return (os.cpu_count() or 1) >= int(name)
        case "package":
            return find_spec(name) is not None
        case "program":
            return shutil.which(name) is not None
        case "setting":
            return name in os.environ
        case _:
            raise ValueError(f"{need!r}: write gpu, cores N, package, program or setting NAME")
