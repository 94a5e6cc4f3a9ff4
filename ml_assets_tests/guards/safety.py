"""Guards over what may run, leak or be taken for markup."""

import ast
import re
from pathlib import Path

from ml_assets_tests.guards.source_text import Module, imported_names, is_literally, modules

_PICKLERS = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
_UNPICKLES = "training/checkpoints/read.py"
_RUNS_A_MODULE = "assets/feature_set/feature_function.py"
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
_LETS_DRAWINGS_IN = "reports/page.py"
_TAG = re.compile(
    r"</?(a|b|body|br|code|dd|details|div|dl|dt|em|footer|h[1-6]|head|html|i|img|li|link|main|meta|ol"
    r"|p|path|pre|script|section|small|span|strong|style|summary|svg|table|t[dhr]|tbody|text|thead"
    r"|title|ul)(?=[\s/>]|$)"
)


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


def pickles(package: Path) -> list[str]:
    """Nothing is pickled: not by name, not through torch or numpy; torch reads weights only.

    One file reads what torch itself pickles, with an unpickler that finds only what it lists.
    """
    found = []
    for module in modules(package):
        for node in [] if _is_restricted(module) else module.nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                picklers = sorted(_PICKLERS & {name.split(".")[0] for name in imported_names(node)})
                found += [f"{module.path}:{node.lineno} imports {name}" for name in picklers]
        for call, name in module.calls:
            said = {k.arg: k.value for k in call.keywords}
            allowed = "allow_pickle" in said and not is_literally(said["allow_pickle"], False)
            whole = name == "torch.load" and not is_literally(said.get("weights_only"), True)
            if allowed or whole or name in {"torch.save", "pickle.load", "pickle.loads"}:
                found.append(f"{module.path}:{call.lineno} {name}() pickles")
    return found


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
        if name in calls
        or any(k.arg == "shell" and not is_literally(k.value, False) for k in call.keywords)
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


def _is_restricted(module: Module) -> bool:
    """The one file with an unpickler: it says what may be found, and calls no other one."""
    return module.path == _UNPICKLES and "find_class" in {f.name for f in module.functions()}
