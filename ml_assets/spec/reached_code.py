"""Finds the code that an entry point runs: functions, classes and constants, by their syntax.

It follows names and imports from its entries, also those inside functions, through this package and
one team's folder; for the folder also everything that importing a file runs. Comments, formatting
and docstrings do not count (unless a team's code reads them), nor does code that is not reached.
Run-time look-ups (``getattr``, ``importlib``, a data file) are not seen: each has to be an entry of
its own. Nothing is imported: a changed file counts as it is now.
"""

import ast
import hashlib
import json
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

from ml_assets.spec.base import digest_of

PACKAGE = Path(__file__).parents[1]
_WHOLE = "*"
"""In place of a name: all of a module."""
_ALWAYS = ""
"""In place of a name: the statements that run whatever is taken from a module."""
_IMPORTS = "import"
"""In place of a name: the modules that a team's module imports, whoever mentions them."""
_OTHER_NAMES = {"sklearn": "scikit-learn", "yaml": "PyYAML"}
"""Imports of this package whose distribution has another name: to find that out takes 0.3 s."""
_FOR_TYPES = ("TYPE_CHECKING", "typing.TYPE_CHECKING")
_READS_TEXT = re.compile(rb"__doc__|getdoc|getsource|getcomments|__loader__|__file__|linecache")
"""How code reads its own docstrings and comments."""


@dataclass(frozen=True)
class CodePart:
    """A top-level name of a module: what it is, and what it mentions."""

    digest: str
    mentions: Sequence[str]
    """``module:name``, or ``module:*``."""
    is_class: bool = False


Module = Mapping[str, CodePart]
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
        """The digest of the syntax and, where asked, of the versions of the installed packages."""
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
    """Return what the entries reach.

    Args:
        entries: ``module`` or ``module:name``.
        stops: modules or packages, installed ones too: they do not count and are not followed, but
            for the modules of the entries.
        values: modules or packages of which no class counts: what such a class holds is digested
            as a value, by whoever asks.
        folder: a team's; its files are named as they import each other (``features``).
        package: where this package lies.
    """
    asked = [_sha256(Path(__file__).read_bytes()), [*entries], sorted(stops), sorted(values)]
    file = package / "__pycache__" / f"closure.{digest_of(asked)[:16]}.json"
    if folder is None and (kept := _kept(file, package)) is not None:
        return kept
    code = _Code(package, folder)
    found = _follow(code, entries, stops, values)
    if folder is None:
        _keep(file, package, found, code.stamps)
    return found


def _follow(
    code: "_Code", entries: Sequence[str], stops: Collection[str], values: Collection[str]
) -> Closure:
    waiting = [one if ":" in one else f"{one}:{_WHOLE}" for one in entries]
    begun = {one.split(":")[0] for one in waiting}
    seen, parts = set(waiting), dict[str, CodePart]()
    packages: set[str] = set()
    while waiting:
        one = waiting.pop()
        module, _, name = one.partition(":")
        if module not in begun and _is_in(module, stops):
            continue
        if code.is_module(module, name):
            waiting.append(f"{module}.{name}:{_WHOLE}")
            continue
        if "." in module and not _is_in(module, [PACKAGE.name]):
            waiting.append(f"{module.rpartition('.')[0]}:{_ALWAYS}")  # it runs first
        if not code.file(module):
            if name != _ALWAYS or not code.is_beside(module):
                packages.add(module.split(".")[0])
            continue
        for found, part in code.taken(module, name):
            if part.is_class and _is_in(found, values):
                continue
            if not found.endswith(f":{_IMPORTS}"):
                parts[found] = part
            new = set(part.mentions) - seen
            seen |= new
            waiting += new
    files = {file for part in parts if (file := code.file(part.split(":")[0]))}
    digests = {name: parts[name].digest for name in parts} | code.texts(files)
    return Closure(
        dict(sorted(digests.items())),
        tuple(sorted(files)),
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
        self._files: dict[str, Path | None] = {}
        self.stamps: dict[Path, str] = {}

    def file(self, module: str) -> Path | None:
        """Return where a module lies; None for one of another package."""
        if module not in self._files:
            self._files[module] = self._find(module)
        return self._files[module]

    def _find(self, module: str) -> Path | None:
        top, *rest = module.split(".")
        if top == PACKAGE.name:
            path = self._package.joinpath(*rest)
        elif self._folder is not None:
            path = self._folder.joinpath(top, *rest)
        else:
            return None
        files = (path.with_name(f"{path.name}.py"), path / "__init__.py")
        return next((file for file in files if file.is_file()), None)

    def is_module(self, package: str, name: str) -> bool:
        """Return whether a name that is taken from a package is a module in it."""
        if name in (_WHOLE, _ALWAYS) or not self.file(f"{package}.{name}"):
            return False
        return not self.file(package) or name not in self._parts(package)

    def is_beside(self, module: str) -> bool:
        """Return whether it is of the team's folder: a folder without a file, or a name."""
        top = module.split(".")[0]
        return bool(self.file(top) or (self._folder and (self._folder / top).is_dir()))

    def taken(self, module: str, name: str) -> Iterator[tuple[str, CodePart]]:
        """Yield what comes along with a name: itself and what always runs; or all of its module."""
        parts = self._parts(module)
        runs = (_ALWAYS, _IMPORTS)
        wanted = (name, *runs) if name in parts else runs if name == _ALWAYS else parts
        yield from ((f"{module}:{one}", parts[one]) for one in wanted if one in parts)

    def texts(self, files: Collection[Path]) -> dict[str, str]:
        """A team's files by their bytes, where one of them reads docstrings or comments."""
        folder = self._folder
        team = [one for one in files if folder and folder in one.parents]
        found = {str(one.relative_to(folder or "")): one.read_bytes() for one in team}
        reads = any(_READS_TEXT.search(content) for content in found.values())
        return {name: _sha256(found[name]) for name in found if reads}

    def _parts(self, module: str) -> Module:
        if module not in self._modules:
            self._modules[module] = self._read(module)
        return self._modules[module]

    def _read(self, module: str) -> Module:
        file = self.file(module)
        if file is None:
            return {}
        self.stamps[file] = stamp = _stamp(file)  # before it is read: an edit meanwhile is seen
        known = _PARSED.get(file)
        if known is None or known[0] != stamp:
            _PARSED[file] = known = (stamp, _parse(file.read_bytes(), module, file))
        return known[1]


_PARSED: dict[Path, tuple[str, Module]] = {}
"""File -> its stamp, and what is in it: many entries reach the same files."""


def _stamp(file: Path) -> str:
    return f"{(status := file.stat()).st_mtime_ns} {status.st_size}"


def _kept(file: Path, package: Path) -> Closure | None:
    """What was found before, where no file of it was touched since."""
    try:
        kept = json.loads(file.read_bytes())
        files = {package / name: stamp for name, stamp in kept["files"].items()}
        if any(_stamp(one) != stamp for one, stamp in files.items()):
            return None
        return Closure(kept["parts"], tuple(files), tuple(kept["packages"]))
    except (OSError, ValueError, LookupError):  # a cache: what cannot be read is found again
        return None


def _keep(file: Path, package: Path, found: Closure, stamps: Mapping[Path, str]) -> None:
    """Beside Python's compiled modules; where nothing can be written it is found again each time,
    in half a second."""
    plain = {
        "files": {one.relative_to(package).as_posix(): stamps[one] for one in found.files},
        "parts": dict(found.parts),
        "packages": found.packages,
    }
    draft = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(exist_ok=True)
        draft.write_text(json.dumps(plain))
        os.replace(draft, file)
    except OSError:  # as Python where it cannot write
        draft.unlink(missing_ok=True)


def _parse(content: bytes, module: str, file: Path) -> Module:
    """The parts of a module. One that is no Python counts by its bytes: importing it says why."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return {_ALWAYS: CodePart(_sha256(content), ())}
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    ours = module.split(".")[0] == PACKAGE.name
    imports: dict[str, list[str]] = {}
    bodies: dict[str, list[ast.stmt]] = {_ALWAYS: []}
    for statement in _run(tree.body):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            if statement.names[0].name == _WHOLE:
                bodies[_ALWAYS].append(statement)
            for name, mention in _imported(statement, package):
                imports.setdefault(name, []).append(mention)
            continue
        more = [_ALWAYS] if not ours and _does_more(statement) else []
        for name in {*(_binds(statement) or [_ALWAYS]), *more}:
            bodies.setdefault(name, []).append(statement)

    def part(body: Sequence[ast.stmt]) -> CodePart:
        nodes = [node for one in body for node in ast.walk(one)]
        inner = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
        found = [mention for node in inner for _, mention in _imported(node, package)]
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        found += [mention for name in names for mention in imports.get(name, ())]
        found += [f"{module}:{name}" for name in names if name in bodies]
        is_class = any(isinstance(one, ast.ClassDef) for one in body)
        # a team's file may have the name of a module of the standard library
        known = sys.stdlib_module_names if ours else frozenset[str]()
        kept = sorted({one for one in found if one.split(":")[0].split(".")[0] not in known})
        return CodePart(_sha256(_plain(list(body)).encode()), kept, is_class)

    parts = {name: part(body) for name, body in bodies.items() if body}
    # a name that is only passed on: whoever takes it from here takes it from there
    passed = {name: CodePart("", there) for name, there in imports.items() if name not in parts}
    if not ours:
        there = {one for mentions in imports.values() for one in mentions}
        modules = {one.split(":")[0] for one in there} | {one.replace(":", ".") for one in there}
        passed[_IMPORTS] = CodePart("", sorted(f"{one}:{_ALWAYS}" for one in modules))
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


def _run(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, without those that are for a type checker alone."""
    for statement in body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) in _FOR_TYPES:
            yield from _run(statement.orelse)
        else:
            yield statement


def _does_more(statement: ast.stmt) -> bool:
    """Whether it may do more, when its module is imported, than give its name a value."""
    if isinstance(statement, ast.ClassDef) or getattr(statement, "decorator_list", None):
        return True
    later = getattr(statement, "body", ())  # a function's
    return any(
        isinstance(node, ast.Call)
        or (isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store))
        for one in ast.iter_child_nodes(statement)
        if one not in later
        for node in ast.walk(one)
    )


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


def syntax_digest(text: str) -> str:
    """The digest of all that a file runs; of its bytes where it is no Python, or where it reads
    docstrings, which then are values like others.

    It is parsed as an import reads it: an encoding that is declared in a comment may make code of
    what looks like one.
    """
    content = text.encode(errors="surrogatepass")
    if _READS_TEXT.search(content):
        return _sha256(content)
    try:
        return _sha256(_plain(ast.parse(content).body).encode())
    except (SyntaxError, ValueError):
        return _sha256(content)


def _is_text(node: object) -> bool:
    """Whether it is a docstring, or another text that nothing uses."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_in(module: str, packages: Collection[str]) -> bool:
    return any(f"{module.partition(':')[0]}.".startswith(f"{one}.") for one in packages)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
