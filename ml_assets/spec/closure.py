"""What a piece of code runs: the functions, classes and constants that it reaches, by their syntax.

From its entries it follows names and imports, also those inside functions, through this package and
one team's folder. Comments, formatting and docstrings count for nothing, and neither does what is
not reached. What is looked up while it runs (``getattr``, ``importlib``) is not seen: it has to be
an entry of its own. Nothing is imported: a changed file counts as it is now.
"""

import ast
import hashlib
import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any

from ml_assets.spec.canonical import digest_of

PACKAGE = Path(__file__).parents[1]
_WHOLE = "*"
"""In place of a name: all of a module."""
_ALWAYS = ""
"""In place of a name: the statements that run whatever is taken from a module."""
_OTHER_NAMES = {"sklearn": "scikit-learn", "yaml": "PyYAML"}
"""Imports of this package whose distribution has another name: to find that out takes 0.3 s."""


@dataclass(frozen=True)
class Part:
    """A top-level name of a module: what it is, and what it mentions."""

    digest: str
    mentions: tuple[str, ...]
    """``module:name``, or ``module:*``."""
    is_class: bool = False


Module = Mapping[str, Part]
"""Name -> its part."""


@dataclass(frozen=True)
class Closure:
    """Everything that some entries reach."""

    parts: Mapping[str, str]
    """``module:name`` -> digest of its syntax."""
    files: tuple[Path, ...]
    packages: tuple[str, ...]
    """Installed packages that are imported, as they are imported; without the standard library."""

    @property
    def modules(self) -> frozenset[str]:
        return frozenset(part.split(":")[0] for part in self.parts)

    def digest(self, *, packages: bool = True) -> str:
        """Of the syntax and, where asked, of the versions of the installed packages."""
        versions = [installed(name) for name in self.packages] if packages else []
        return digest_of({"parts": dict(self.parts), "packages": versions})


def closure(
    entries: Sequence[str],
    *,
    stops: Collection[str] = (),
    values: Collection[str] = (),
    folder: Path | None = None,
    package: Path = PACKAGE,
) -> Closure:
    """What the entries reach.

    Args:
        entries: ``module`` or ``module:name``.
        stops: modules, packages or ``module:name``: they do not count and are not followed. So are
            installed packages of these names.
        values: modules or packages of which no class counts: what such a class holds is digested
            as a value, by whoever asks.
        folder: a team's; its files are named as they import each other (``features``).
        package: where this package lies.
    """
    code = _Code(package, folder)
    waiting = [one if ":" in one else f"{one}:{_WHOLE}" for one in entries]
    seen, parts = set(waiting), dict[str, Part]()
    packages: set[str] = set()
    while waiting:
        one = waiting.pop()
        module, _, name = one.partition(":")
        if one in stops or _is_in(module, stops):
            continue
        if not code.has(module, name):
            packages.add(module.split(".")[0])
            continue
        for found, part in code.taken(module, name):
            if part.is_class and _is_in(found, values):
                continue
            parts[found] = part
            new = set(part.mentions) - seen
            seen |= new
            waiting += new
    code.keep()
    files = {code.file(part.split(":")[0]) for part in parts}
    return Closure(
        {name: parts[name].digest for name in sorted(parts)},
        tuple(sorted(file for file in files if file)),
        tuple(sorted(packages.difference(sys.stdlib_module_names))),
    )


@cache
def installed(package: str) -> str:
    """Distribution and version of an imported package, as ``scikit-learn 1.7.2``."""
    try:
        name = _OTHER_NAMES.get(package, package)
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        found = packages_distributions().get(package, [])
        return ", ".join(f"{name} {version(name)}" for name in sorted({*found})) or package


class _Code:
    """The modules of a package and of a team's folder; the package's are parsed once for all."""

    def __init__(self, package: Path, folder: Path | None) -> None:
        self._package, self._folder = package, folder
        self._modules: dict[str, Module] = {}
        self._kept = _kept(package)

    def file(self, module: str) -> Path | None:
        """Where a module lies; None for one of another package."""
        top, *rest = module.split(".")
        if top == PACKAGE.name:
            path = self._package.joinpath(*rest)
        elif self._folder is not None:
            path = self._folder.joinpath(top, *rest)
        else:
            return None
        files = (path.with_name(f"{path.name}.py"), path / "__init__.py")
        return next((file for file in files if file.is_file()), None)

    def has(self, module: str, name: str) -> bool:
        return bool(self.file(module) or self.file(f"{module}.{name}"))

    def taken(self, module: str, name: str) -> Iterator[tuple[str, Part]]:
        """What comes along with a name: itself and what always runs; or all of its module."""
        parts = self._parts(module)
        if name not in parts and name != _WHOLE and self.file(f"{module}.{name}"):
            module, name = f"{module}.{name}", _WHOLE
            parts = self._parts(module)
        wanted = (name, _ALWAYS) if name in parts else parts
        yield from ((f"{module}:{one}", parts[one]) for one in wanted if one in parts)

    def keep(self) -> None:
        self._kept.write()

    def _parts(self, module: str) -> Module:
        if module not in self._modules:
            self._modules[module] = self._read(module)
        return self._modules[module]

    def _read(self, module: str) -> Module:
        file = self.file(module)
        if file is None:
            return {}
        content = file.read_bytes()
        if module.split(".")[0] != PACKAGE.name:
            return _parse(content, module, file)
        return self._kept.get(content, module, file)


@cache
def _kept(package: Path) -> "_Kept":
    return _Kept(package)


class _Kept:
    """Parsed modules beside Python's compiled ones, held to the digest of their source.

    Where nothing can be written there, they are parsed again in each process (half a second).
    """

    def __init__(self, package: Path) -> None:
        self._file = package / "__pycache__" / f"closure.{sys.implementation.cache_tag}.json"
        self._format = _sha256(Path(__file__).read_bytes())
        self._changed = False
        self._known: dict[str, Any] = {}
        try:
            found = json.loads(self._file.read_bytes())
        except (OSError, ValueError):  # a cache: what cannot be read is made again
            return
        if found.get("format") == self._format:
            self._known = found["modules"]

    def get(self, content: bytes, module: str, file: Path) -> Module:
        source = _sha256(content)
        if self._known.get(module, {}).get("source") != source:
            parsed = _parse(content, module, file)
            parts = {name: asdict(part) for name, part in parsed.items()}
            self._known[module] = {"source": source, "parts": parts}
            self._changed = True
        return {
            name: Part(part["digest"], tuple(part["mentions"]), part["is_class"])
            for name, part in self._known[module]["parts"].items()
        }

    def write(self) -> None:
        if not self._changed:
            return
        draft = self._file.with_suffix(f".{os.getpid()}")
        try:
            self._file.parent.mkdir(exist_ok=True)
            draft.write_text(json.dumps({"format": self._format, "modules": self._known}))
            os.replace(draft, self._file)
            self._changed = False
        except OSError:  # as Python where it cannot write its compiled files
            draft.unlink(missing_ok=True)


def _parse(content: bytes, module: str, file: Path) -> Module:
    """The parts of a module. One that is no Python counts by its bytes: importing it says why."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return {_ALWAYS: Part(_sha256(content), ())}
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    imports: dict[str, list[str]] = {}
    bodies: dict[str, list[ast.stmt]] = {_ALWAYS: []}
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            if statement.names[0].name == _WHOLE:
                bodies[_ALWAYS].append(statement)
            for name, mention in _imported(statement, package):
                imports.setdefault(name, []).append(mention)
            continue
        if _is_for_types_only(statement):
            continue
        for name in _binds(statement) or [_ALWAYS]:
            bodies.setdefault(name, []).append(statement)

    def part(body: Sequence[ast.stmt]) -> Part:
        found = [mention for one in body for mention in _mentions(one, package)]
        names = {node.id for one in body for node in ast.walk(one) if isinstance(node, ast.Name)}
        found += [mention for name in names for mention in imports.get(name, ())]
        found += [f"{module}:{name}" for name in names if name in bodies]
        is_class = any(isinstance(one, ast.ClassDef) for one in body)
        return Part(_sha256(_plain(list(body)).encode()), tuple(sorted({*found})), is_class)

    parts = {name: part(body) for name, body in bodies.items()}
    # a name that is only passed on: whoever takes it from here takes it from there
    passed = {name: Part("", tuple(there)) for name, there in imports.items() if name not in parts}
    return {**passed, **parts}


def _binds(statement: ast.stmt) -> list[str]:
    """The names of a module that a statement gives a value."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    found = {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        for node in ast.walk(statement):
            if isinstance(node, ast.Import | ast.ImportFrom):
                found |= {name for name, _ in _imported(node, "")}
        return sorted(found | {_ALWAYS})  # an if, a try, a loop: it may do more than that
    return sorted(found)


def _is_for_types_only(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.test).endswith("TYPE_CHECKING")


def _mentions(statement: ast.stmt, package: str) -> Iterator[str]:
    """What a statement imports in itself."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (mention for _, mention in _imported(node, package))


def _imported(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, str]]:
    """Each name that an import binds, and what it stands for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.asname or alias.name.split(".")[0], f"{alias.name}:{_WHOLE}"
        return
    module = node.module or ""
    if node.level:
        above = package.split(".")[: len(package.split(".")) - node.level + 1]
        module = ".".join(part for part in [*above, module] if part)
    for alias in node.names:
        # beside it in a team's folder: there is no package to take the name from
        mention = f"{module}:{alias.name}" if module else f"{alias.name}:{_WHOLE}"
        yield alias.asname or alias.name, mention


def _plain(value: object) -> str:
    """Syntax as text: the same for every version of Python that writes it the same."""
    if isinstance(value, list):
        return f"[{','.join(_plain(one) for one in value if not _is_text(one))}]"
    if not isinstance(value, ast.AST):
        return repr(value)
    fields = (
        f"{name}={_plain(part)}"
        for name, part in ast.iter_fields(value)
        if part is not None and part != [] and name not in ("ctx", "kind", "type_comment")
    )
    return f"{type(value).__name__}({','.join(fields)})"


def _is_text(node: object) -> bool:
    """Whether it is a docstring, or another text that nothing uses."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_in(module: str, packages: Collection[str]) -> bool:
    name = module.partition(":")[0]
    return any(name == one or name.startswith(f"{one}.") for one in packages)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
