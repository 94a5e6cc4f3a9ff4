"""Code of a team that runs and is not seen: functions that do different things are told apart."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from ml_assets.graph.stage_code import function_code
from ml_assets.spec.reached_code import closure

HONEST = """\
import polars as pl

def build(tables, window):
    return tables["rows"]
"""
UNLIKE = HONEST.replace('tables["rows"]', 'tables["rows"].with_columns(pl.col("label") * 3)')
HIDDEN = f"""\
from typing import TYPE_CHECKING

{HONEST}
if not TYPE_CHECKING:
    def build(tables, window):
        return tables["rows"].with_columns(pl.col("label") * 3)
"""
OF_A_PACKAGE = HONEST.replace("import polars as pl", "import polars as pl\nfrom kit.mod import f")
OF_A_PACKAGE = OF_A_PACKAGE.replace('["rows"]', '["rows"].pipe(f)')
KIT = {"features.py": OF_A_PACKAGE, "kit/mod.py": "def f(rows): return rows\n"}
PATCHES = "import kit.mod\nkit.mod.f = lambda rows: rows * 3\n"
READS = HONEST.replace("window):\n", 'window):\n    "{}"\n').replace(
    '["rows"]', '["rows"].with_columns(leak=pl.sql_expr(build.__doc__))'
)
TYPES_ONLY = (
    f"{HONEST}\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from kit import Kept\n"
)
Files = Mapping[str, str]
EDITS: dict[str, tuple[Files, Files]] = {
    "another function where types are not checked": (
        {"features.py": HONEST},
        {"features.py": HIDDEN},
    ),
    "a module that is imported for what it does": (
        {"features.py": HONEST},
        {"features.py": f"import patches\n{HONEST}", "patches.py": "import polars\npolars.col = 1"},
    ),
    "such a module, edited": (
        {"features.py": f"import patches\n{HONEST}", "patches.py": "x = 1"},
        {"features.py": f"import patches\n{HONEST}", "patches.py": "import polars\npolars.col = 1"},
    ),
    "what a package runs when something is taken from it": (
        {**KIT, "kit/__init__.py": ""},
        {**KIT, "kit/__init__.py": PATCHES},
    ),
    "a module that is imported beside another one, and mentioned by nobody": (
        {**KIT, "features.py": f"from kit import mod, more\n{OF_A_PACKAGE}", "kit/more.py": ""},
        {
            **KIT,
            "features.py": f"from kit import mod, more\n{OF_A_PACKAGE}",
            "kit/more.py": PATCHES,
        },
    ),
    "a call in the value of a name that nobody mentions": (
        {"features.py": HONEST},
        {"features.py": f"{HONEST}\n_ = setattr(pl, 'col', None)\n"},
    ),
    "a class that nobody mentions": (
        {"features.py": HONEST},
        {"features.py": f"{HONEST}\nclass Kept:\n    pl.col = None\n"},
    ),
    "a decorator of a function that nobody mentions": (
        {"features.py": HONEST},
        {"features.py": f"{HONEST}\n@pl.api.register_expr_namespace('x')\ndef more(): ...\n"},
    ),
    "what runs where types are not checked": (
        {"features.py": f"{TYPES_ONLY}else:\n    build = None\n"},
        {"features.py": f"{TYPES_ONLY}else:\n    build = print\n"},
    ),
    "a docstring that the code reads": (
        {"features.py": READS.format("0")},
        {"features.py": READS.format("label * 3")},
    ),
}


def digest(folder: Path, files: Files) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return function_code(folder, "features.py:build")


def test_what_is_in_plain_sight_is_seen(tmp_path: Path) -> None:
    one = digest(tmp_path / "a", {"features.py": HONEST})
    assert one != digest(tmp_path / "b", {"features.py": UNLIKE})


def test_what_does_not_run_does_not_count(tmp_path: Path) -> None:
    other = TYPES_ONLY.replace("from kit import Kept", "import kit.mod")
    one, two = {**KIT, "features.py": TYPES_ONLY}, {**KIT, "features.py": other}
    assert digest(tmp_path / "a", one) == digest(tmp_path / "b", two)
    used = "from kit.mod import f\n\ndef build(tables, window):\n    return f(tables)\n"
    files = {"features.py": used, "kit/mod.py": KIT["kit/mod.py"]}
    edited = {**files, "kit/mod.py": f"{KIT['kit/mod.py']}\nUNUSED = 1\ndef more(): return f(0)\n"}
    assert digest(tmp_path / "c", files) == digest(tmp_path / "d", edited)
    found = closure(["features:build"], folder=tmp_path / "c")
    assert found.packages == (), "a folder without __init__.py is no installed package"


@pytest.mark.parametrize("what", EDITS)
def test_code_that_runs_counts(tmp_path: Path, what: str) -> None:
    """Else features are edited for a training, put back, and nobody is told."""
    before, after = EDITS[what]
    assert digest(tmp_path / "before", before) != digest(tmp_path / "after", after)
