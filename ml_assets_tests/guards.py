"""Guards over the source text: each returns what breaks a rule, one line a finding.

They are functions of a folder, so that a test can plant the fault and see it found.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

FUNCTION_LINES = 60
FUNCTION_LINES_P95 = 40
MODULE_LINES = 400
PIN = re.compile(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*")

_FORBIDDEN_STEMS = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}
_EVALUATED_ANNOTATIONS = (
    "assets/",
    "adapters/",
    "automation/",
    "component.py",
    "extras/",
)
_PICKLERS = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
_UNPICKLES = "training/checkpoints/read.py"
_RUNS_A_MODULE = "assets/feature_set/feature_function.py"
_FOR_PIPELINES = ("ml_assets.assets.feature_set.", "ml_assets.spec")
_SEE_ROWS = tuple(
    f"assets/{stage}/"
    for stage in ("raw_snapshot", "validated_table", "feature_set", "training_set")
)
_SEE_NO_ROWS = (
    "assets/raw_snapshot/readers/s3.py",
    "assets/raw_snapshot/readers/look_cache.py",
    "assets/validated_table/contract/suite.py",
)
"""Modules of those rooms that meet objects, stamps and the contract's own text."""
_DRAWS = (
    "reports/drawing.py",
    "reports/inline_pictures.py",
    "reports/picture.py",
    "reports/row_charts.py",
)
_TEXT_IMPORT = re.compile(r"^ *from (ml_assets(?:_tests)?[\w.]*) import ([\w, ]+?) *$", re.M)
_LETS_DRAWINGS_IN = "reports/page.py"
_TAG = re.compile(
    r"</?(a|b|body|br|code|dd|details|div|dl|dt|em|footer|h[1-6]|head|html|i|img|li|link|main|meta|ol"
    r"|p|path|pre|script|section|small|span|strong|style|summary|svg|table|t[dhr]|tbody|text|thead"
    r"|title|ul)(?=[\s/>]|$)"
)
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
_NAIVE = {"utcnow", "utcfromtimestamp", "today"}

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


def _is_a_command(path: str) -> bool:
    return path.startswith("extras/") and path.endswith("/command.py")


def prints(package: Path) -> list[str]:
    return [
        f"{module.path}:{call.lineno} prints"
        for module in modules(package)
        if not module.path.startswith("cli/") and not _is_a_command(module.path)
        for call, name in module.calls
        if name == "print"
    ]


def unquoted_words(package: Path) -> list[str]:
    """Where rows are read, what somebody else's error says is quoted: it may hold a value."""
    found: list[str] = []
    for module in modules(package):
        if not module.path.startswith(_SEE_ROWS) or module.path in _SEE_NO_ROWS:
            continue
        calls = [call for call, name in module.calls if name == "quoted"]
        safe = {id(part) for call in calls for part in ast.walk(call)}
        handlers = [n for n in module.nodes if isinstance(n, ast.ExceptHandler) and n.name]
        for handler in handlers:
            said = re.compile(rf"^{handler.name}$|\bstr\({handler.name}\)")
            found += [
                f"{module.path}:{part.lineno} {ast.unparse(part.value)}"
                for part in ast.walk(handler)
                if isinstance(part, ast.FormattedValue) and id(part.value) not in safe
                if said.search(ast.unparse(part.value))
            ]
    return found


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


def nosy_pipelines(package: Path) -> list[str]:
    """Imports of a team's folder from the engine, other than from the rooms meant for it."""
    return [
        f"{module.path}:{node.lineno} imports {name}"
        for module in modules(package)
        if module.path.startswith("pipelines/")
        for node in module.nodes
        for name in _imported(node)
        if name.startswith("ml_assets.") and not name.startswith(_FOR_PIPELINES)
    ]


def pickles(package: Path) -> list[str]:
    """Nothing is pickled: not by name, not through torch or numpy; torch reads weights only.

    One file reads what torch itself pickles, with an unpickler that finds only what it lists.
    """
    found = []
    for module in modules(package):
        for node in [] if _is_restricted(module) else module.nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                picklers = sorted(_PICKLERS & {name.split(".")[0] for name in _imported(node)})
                found += [f"{module.path}:{node.lineno} imports {name}" for name in picklers]
        for call, name in module.calls:
            said = {k.arg: k.value for k in call.keywords}
            allowed = "allow_pickle" in said and not _is(said["allow_pickle"], False)
            whole = name == "torch.load" and not _is(said.get("weights_only"), True)
            if allowed or whole or name in {"torch.save", "pickle.load", "pickle.loads"}:
                found.append(f"{module.path}:{call.lineno} {name}() pickles")
    return found


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
        for name in _imported(node)
        if re.match(r"dagster\w*(\.|$)", name)
    ]


def settings_elsewhere(package: Path) -> list[str]:
    """The environment is read where a process begins, and handed down as settings from there."""
    return [
        f"{module.path}:{node.lineno} reads the settings of the environment"
        for module in modules(package)
        if not module.path.startswith(_READS_SETTINGS) and not _is_a_command(module.path)
        for node in module.nodes
        if isinstance(node, ast.Call) and not node.args and not node.keywords
        if isinstance(node.func, ast.Name) and node.func.id == "read_settings"
    ]


def executed_text(package: Path) -> list[str]:
    """Text that becomes code or a shell's command: ``eval``, ``yaml.load``, ``shell=True``.

    One file runs a team's own module, which is code of the repository.
    """
    calls = {"eval", "exec", "compile", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load"}
    calls |= {"yaml.full_load", "subprocess.getoutput", "subprocess.getstatusoutput"}
    return [
        f"{module.path}:{call.lineno} {name}()"
        for module in modules(package)
        for call, name in module.calls
        if module.path != _RUNS_A_MODULE
        if name in calls or any(k.arg == "shell" and not _is(k.value, False) for k in call.keywords)
    ]


def markup_outside_templates(package: Path) -> list[str]:
    """Tags and escapes in Python: pages are templates, which escape; drawings are the exception."""
    found: list[str] = []
    for module in modules(package):
        if module.path in _DRAWS:
            continue
        docs = {id(one.value) for one in module.nodes if isinstance(one, ast.Expr)}
        found += [
            f"{module.path}:{node.lineno} {node.value.strip()[:40]}"
            for node in module.nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            if id(node) not in docs and _TAG.search(node.value)
        ]
        found += [
            f"{module.path}:{call.lineno} {name}()"
            for call, name in module.calls
            if name.rpartition(".")[2] in {"escape", "Markup"} and name != "re.escape"
            if module.path != _LETS_DRAWINGS_IN or name != "Markup"
        ]
    return found


def unescaped_templates(package: Path) -> list[str]:
    """Templates that let text through as it is."""
    return [
        f"{file.name}: {found[0]}"
        for file in package.rglob("*.html")
        for found in re.finditer(r"\|\s*safe\b|\bautoescape\b", file.read_text())
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


def _imported(node: ast.AST) -> list[str]:
    """Dotted names; ``from a import b`` gives ``a.b``, which may be a module or not."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def _qualified(node: ast.AST) -> list[str]:
    """Every name that an import or an attribute reaches, with the modules before it."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return [ast.unparse(node)] if isinstance(node, ast.Attribute) else []


def _is(node: ast.expr | None, value: bool) -> bool:
    """Whether an argument is literally True, or False."""
    return isinstance(node, ast.Constant) and node.value is value


def _is_restricted(module: Module) -> bool:
    """The one file with an unpickler: it says what may be found, and calls no other one."""
    return module.path == _UNPICKLES and "find_class" in {f.name for f in module.functions()}


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
