"""The tree in docs/how-it-works.md is the tree of the code."""

import re
from pathlib import Path

PROJECT = Path(__file__).parent.parent
PAGE = PROJECT / "docs" / "how-it-works.md"
OPEN_THAT = "| to change | open |"
LINK = re.compile(r"\]\(((?:\.\./)?ml_assets/[^)#]+)")


def drawn(page: str) -> set[str]:
    """The folders and files that the page's tree names, as paths below ``ml_assets/``."""
    tree = page.split("```\nml_assets/\n", 1)[1].split("```", 1)[0]
    found: set[str] = set()
    above: list[str] = []
    for line in tree.splitlines():
        name = line.split()[0]
        above[(len(line) - len(line.lstrip())) // 2 - 1 :] = [name.rstrip("/")]
        found.add("/".join(above))
    return found


def stands(package: Path) -> set[str]:
    """Every folder of the package but the teams' own, and the files at its top."""
    folders = {file.parent.relative_to(package) for file in package.rglob("*.py")} - {Path()}
    named = {folder.as_posix() for folder in folders if folder.parts[:-1] != ("pipelines",)}
    parents = {parent.as_posix() for folder in folders for parent in folder.parents} - {"."}
    files = {file.name for file in package.glob("*.py")} - {"__init__.py"}
    return named | (parents - {"pipelines"}) | {"pipelines"} | files


def test_the_page_shows_every_folder_and_none_that_is_gone() -> None:
    assert drawn(PAGE.read_text()) == stands(PROJECT / "ml_assets")


def test_a_folder_that_the_page_leaves_out_is_seen(tmp_path: Path) -> None:
    (tmp_path / "new_room").mkdir()
    (tmp_path / "new_room" / "a.py").write_text("")
    assert "new_room" in stands(tmp_path) - drawn(PAGE.read_text())


def opened(page: str) -> list[str]:
    """The files that the page's table "To change this, open that" names, below ``ml_assets/``."""
    rows = page.split(f"{OPEN_THAT}\n", 1)[1].split("\n\n", 1)[0]
    return re.findall(r"`([\w/]+\.py)`", rows)


def test_each_file_that_the_table_of_changes_names_is_there() -> None:
    named = opened(PAGE.read_text())
    assert len(named) > 15
    assert [name for name in named if not (PROJECT / "ml_assets" / name).is_file()] == []


def test_a_file_that_the_table_of_changes_still_names_is_seen() -> None:
    assert opened(f"{OPEN_THAT}\n|---|---|\n| it | `a/gone.py`, `b.py` |\n\n`no.py`") == [
        "a/gone.py",
        "b.py",
    ]


def test_every_link_into_the_code_leads_to_a_file() -> None:
    pages = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
    dead = [
        f"{page.name}: {link}"
        for page in pages
        for link in LINK.findall(page.read_text())
        if not (page.parent / link).exists()
    ]
    assert dead == []
