"""What a closure counts, and what it does not."""

import shutil
from pathlib import Path

import pytest

from ml_assets.spec.reached_code import PACKAGE, closure, installed

HELPERS = '''"""Helpers."""

LIMIT = 3
UNUSED = 1


def shorten(value: int) -> int:
    """Cut it."""
    return min(value, LIMIT)


def other() -> int:
    return 0
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "features.py").write_text(
        "import helpers\n\n\ndef build(x):\n    return helpers.shorten(x)\n"
    )
    (tmp_path / "helpers.py").write_text(HELPERS)
    return tmp_path


def digest(folder: Path, entry: str = "features:build") -> str:
    return closure([entry], folder=folder).digest()


def edited(folder: Path, file: str, old: str, new: str) -> tuple[str, str]:
    before = digest(folder)
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    return before, digest(folder)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Cut it."""', '"""Shorten it, at last."""'),
        ("return min(value, LIMIT)", "return min(  # a remark\n        value,\n        LIMIT)"),
        ("    return min", "\n    return min"),
    ],
    ids=["docstring", "format", "empty line"],
)
def test_what_says_nothing_to_python_counts_for_nothing(folder, old, new):
    before, after = edited(folder, "helpers.py", old, new)
    assert before == after


@pytest.mark.parametrize(
    ("old", "new"),
    [("min(", "max("), ("LIMIT = 3", "LIMIT = 4"), ("value: int", "value: int = 1")],
    ids=["body", "constant", "default"],
)
def test_what_a_sibling_does_counts(folder, old, new):
    before, after = edited(folder, "helpers.py", old, new)
    assert before != after


def test_only_names_that_are_reached_count(folder):
    (folder / "features.py").write_text("from helpers import shorten\n\nbuild = shorten\n")
    for old, new in (("return 0", "return 1"), ("UNUSED = 1", "UNUSED = 2")):
        before, after = edited(folder, "helpers.py", old, new)
        assert before == after
    before, after = edited(folder, "helpers.py", "LIMIT = 3", "LIMIT = 4")
    assert before != after


@pytest.mark.parametrize(
    "text",
    [
        "def build(x):\n    from helpers import shorten\n    return shorten(x)\n",
        "from .helpers import shorten as cut\n\ndef build(x):\n    return cut(x)\n",
        "from . import helpers\n\ndef build(x):\n    return helpers.shorten(x)\n",
        "from helpers import *\n\ndef build(x):\n    return shorten(x)\n",
        "try:\n    import helpers as h\nexcept ImportError:\n    h = None\n\n"
        "def build(x):\n    return h.shorten(x)\n",
        "import helpers\nKNOWN = {}\nKNOWN['cut'] = helpers.shorten\n\n"
        "def build(x):\n    return KNOWN['cut'](x)\n",
    ],
    ids=["in a function", "relative", "the module", "star", "try", "a table of functions"],
)
def test_every_way_to_import_is_followed(folder, text):
    (folder / "features.py").write_text(text)
    before, after = edited(folder, "helpers.py", "min(", "max(")
    assert before != after


def test_a_package_in_the_folder_is_followed_through_what_it_passes_on(folder):
    (folder / "cut").mkdir()
    (folder / "cut" / "__init__.py").write_text("from .short import shorten\n")
    (folder / "cut" / "short.py").write_text(HELPERS)
    (folder / "features.py").write_text("from cut import shorten\n\nbuild = shorten\n")
    before, after = edited(folder, "cut/short.py", "min(", "max(")
    assert before != after


def test_installed_packages_count_by_distribution_and_version(folder):
    (folder / "features.py").write_text(
        "import json\nimport polars as pl\nfrom sklearn.cluster import KMeans\n\n"
        "def build(x):\n    return pl.DataFrame(json.loads(x)), KMeans()\n"
    )
    found = closure(["features:build"], folder=folder)
    assert found.packages == ("polars", "sklearn")
    assert installed("sklearn").startswith("scikit-learn 1.")
    assert installed("PIL").startswith("pillow "), "a name that has to be looked up"


def test_a_file_that_cannot_be_parsed_counts_by_its_bytes(folder):
    (folder / "helpers.py").write_text("def (")
    before, after = edited(folder, "helpers.py", "def (", "def ((")
    assert before != after


def test_stops_are_neither_counted_nor_followed(folder):
    found = closure(["features:build"], folder=folder, stops=["helpers"])
    assert found.modules == {"features"}


def test_classes_of_values_do_not_count_and_their_functions_do():
    found = closure(["ml_assets.spec.partitions"], values=["ml_assets.spec"])
    assert "ml_assets.spec.partitions:windows" in found.parts
    assert "ml_assets.spec.partitions:PartitionWindow" not in found.parts


def test_what_was_found_is_kept_and_an_edit_is_still_seen(tmp_path):
    package = tmp_path / "ml_assets"
    shutil.copytree(PACKAGE / "spec", package / "spec", ignore=shutil.ignore_patterns("__py*"))
    entry = "ml_assets.spec.base:digest_of"
    before = closure([entry], package=package)
    (kept,) = (package / "__pycache__").glob("closure.*.json")
    assert closure([entry], package=package) == before
    file = package / "spec" / "base.py"
    file.write_text(file.read_text().replace("hexdigest()", "hexdigest()[:63]"))
    after = closure([entry], package=package)
    assert before.digest() != after.digest()
    assert before.files == after.files
    kept.write_text("{")
    assert closure([entry], package=package) == after
