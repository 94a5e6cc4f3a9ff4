"""Every block of code in the README and in docs/ is executed by a test, or says why it is not.

A block is held by its kind: YAML by the spec's own models, JSON by the parser, Python by running
it, shell by the command line (each command of ours is one that it takes, and one that a test runs).
What is held elsewhere, or by nobody, says so in a comment right above it:

    <!-- run by: FILE::TEST -->        <!-- not run: REASON -->
"""

import ast
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pydantic import TypeAdapter

from ml_assets.spec.documents import read_yaml
from ml_assets.spec.pipeline import PipelineSpec
from ml_assets.spec.search import SearchSpec
from ml_assets.spec.window import Window
from ml_assets_tests.cli.words import KNOWN, wrong_in_a_page

TESTS = Path(__file__).parent
PROJECT = TESTS.parent
PAGES = [
    PROJECT / "README.md",
    PROJECT / "deploy" / "README.md",
    *sorted((PROJECT / "docs").rglob("*.md")),
]
WHOLE = {"tutorial.md": "test_tutorial.py", "reference.md": "test_reference.py"}
"""Pages that a test of their own holds from the first line to the last."""
_FENCE = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]+) -->\n)?^```(?P<kind>\w*)[^\n]*\n(?P<body>.*?)^```$", re.M | re.S
)
_CONFLICT = re.compile(r"^(<{7}|={7}|>{7})( |$)", re.M)
_TEST = re.compile(r"([\w/]+\.py)::(test_\w+)")
_OURS = ("export", "cd", ".", "head", "mkdir")
_SHELL = re.compile(r"\s(?:&&?|\|)(?:\s|$)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    kind: str
    body: str
    mark: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str, text: str) -> Iterator[Block]:
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page, line, found["kind"], found["body"], found["mark"] or "")


BLOCKS = [
    block
    for page in PAGES
    if page.name not in WHOLE
    for block in blocks_of(page.name, page.read_text())
]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_is_executed_or_says_why_not(block: Block) -> None:
    assert trouble(block) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_no_fence_of_a_page_is_overlooked(page: Path) -> None:
    fences = re.findall(r"^[ >]*(?:```|~~~)", page.read_text(), re.M)
    assert len(fences) == 2 * len(list(blocks_of(page.name, page.read_text())))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_no_page_holds_a_merge_that_nobody_finished(page: Path) -> None:
    assert not _CONFLICT.search(page.read_text())


def test_each_test_that_a_page_names_is_there() -> None:
    named = {found.groups() for page in PAGES for found in _TEST.finditer(page.read_text())}
    assert named
    for file, name in named:
        assert f"def {name}(" in (Path(__file__).parent / file).read_text(), f"{file}::{name}"


@pytest.mark.parametrize("marker", ["<<<<<<< HEAD", "=======", ">>>>>>> main"])
def test_a_merge_that_nobody_finished_is_seen(marker: str) -> None:
    assert _CONFLICT.search(f"a line\n{marker}\nanother\n")


def test_the_readme_has_a_pipeline_of_ones_own_right_after_the_demo() -> None:
    heads = re.findall(r"^## (.+)$", (PROJECT / "README.md").read_text(), re.M)
    assert heads[:2] == ["Two commands", "A pipeline of your own"]


@pytest.mark.parametrize("page", WHOLE)
def test_a_page_with_a_test_of_its_own_is_what_that_test_reads(page: str) -> None:
    assert page in (TESTS / WHOLE[page]).read_text()


def trouble(block: Block) -> list[str]:
    """What keeps a block from being one that is executed, or that says why it is not."""
    how, _, said = block.mark.partition(": ")
    if how == "not run":
        return [] if len(said.split()) > 2 else [f"{said!r} is no reason"]
    if how == "run by":
        return _missing_test(said)
    if block.mark:
        return [f"{block.mark!r}: 'run by: FILE::TEST' or 'not run: REASON' is expected"]
    match block.kind:
        case "yaml":
            return list(_wrong_spec(block.body))
        case "json":
            json.loads(block.body)
            return []
        case "python":
            exec(compile(block.body, str(block), "exec"), _names())
            return []
        case "sh":
            return list(_not_run(block.body))
        case "text":
            return []  # what is printed, or a sketch
        case _:
            return [f"a block of {block.kind or 'no kind'}: say what it is, or who runs it"]


def _missing_test(said: str) -> list[str]:
    file, _, test = said.partition("::")
    path = TESTS / file
    if not path.is_file():
        return [f"there is no file {file}"]
    return [] if f"def {test}(" in path.read_text() else [f"{file} has no test {test!r}"]


def _wrong_spec(text: str) -> Iterator[str]:
    """A whole spec; or each part of one, by its field. Sources may stand without their head."""
    part = read_yaml(text)
    if "search" in part:
        TypeAdapter(SearchSpec).validate_python(part["search"])
        return
    if text.startswith(" "):
        part = {"sources": part}
    if "type" in part:
        PipelineSpec.model_validate(part["attributes"])
        return
    for name, value in part.items():
        field = PipelineSpec.model_fields.get(name)
        if field is None:
            yield f"a spec has no {name!r}"
            continue
        typed: Any = field.annotation
        for one in field.metadata:
            typed = _with(typed, one)
        TypeAdapter(typed).validate_python(tuple(value) if isinstance(value, list) else value)


def _with(typed: Any, metadata: Any) -> Any:
    from typing import Annotated

    return Annotated[typed, metadata]


def _names() -> dict[str, Any]:
    """What a fragment of Python finds around it."""
    at = [datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in range(6)]
    rows = pl.DataFrame({"time": at, "station": "north", "pm25": [float(n) for n in range(6)]})
    import dagster as dg

    return {"Mapping": Mapping, "pl": pl, "Window": Window, "rows": rows, "dg": dg}


def _not_run(script: str) -> Iterator[str]:
    """Commands that are none of ours, and those of ours that no test runs."""
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words and re.match(r"\w+=", words[0]):  # the environment
            words = words[1:]
        if not words or words[0] in _OURS:
            continue
        if words[0].rpartition("/")[2] != "ml-assets" or _SHELL.search(line.split(" #")[0]):
            yield f"no test runs {line.strip()!r}: mark it"
        elif (path := _path(words[1:])) not in run_by_tests():
            yield f"no test runs ml-assets {' '.join(path)}"
    yield from wrong_in_a_page(f"```sh\n{script}```")


def _path(words: list[str]) -> tuple[str, ...]:
    """The command that words begin with."""
    length = 0
    while length < len(words) and tuple(words[: length + 1]) in KNOWN:
        length += 1
    return tuple(words[:length])


@cache
def run_by_tests() -> set[tuple[str, ...]]:
    """The commands of ml-assets that a test calls: ``world.cli("release", "history", ...)``."""
    found: set[tuple[str, ...]] = set()
    for file in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call | ast.List | ast.Tuple):
                held = node.args if isinstance(node, ast.Call) else node.elts
                words = [one.value if isinstance(one, ast.Constant) else None for one in held]
                for start in range(len(words)):
                    found.add(_path([str(word) for word in words[start:]]))
    return found


def test_the_feature_functions_of_the_page_use_only_prices_that_were_known() -> None:
    day = [datetime(2024, 1, number, tzinfo=UTC) for number in range(1, 6)]
    shown = [day[2], day[2], day[0]]
    clicks = pl.LazyFrame({"item": [1, 2, 1], "shown_at": shown, "brand": ["a", "b", "c"]})
    since = [day[0], day[3], day[1]]
    prices = pl.LazyFrame({"item": [1, 1, 2], "valid_from": since, "price": [1.0, 2.0, 3.0]})
    tables, window = {"clicks": clicks, "prices": prices}, Window("2024-01-02", day[1], day[4])
    page = [b for b in BLOCKS if b.page == "add-a-pipeline.md" and b.kind == "python"]
    found = [block for block in page if "latest(" in block.body]
    assert len(found) == 2
    names = _names()
    for block in found:
        exec(compile(block.body, str(block), "exec"), names)
        made = names["build"](tables, window).lazy().collect()
        assert made.select("item", "price").rows() == [(1, 1.0), (2, 3.0)], str(block)


WRONG = {
    "no mark on what is none of ours": ("sh", "kubectl get pods\n", ""),
    "a command that no test runs": ("sh", "ml-assets release burn\n", ""),
    "two commands in a line": ("sh", "ml-assets status p | grep x\n", ""),
    "a reason that is none": ("sh", "kubectl get pods\n", "not run: no"),
    "a test that is not there": ("sh", "make test\n", "run by: test_docs.py::test_it"),
    "another mark": ("sh", "make test\n", "skipped: it is long, you know"),
    "a field that there is not": ("yaml", "lable: {column: a}\n", ""),
    "a block without a kind": ("", "a\n", ""),
}


@pytest.mark.parametrize(("kind", "body", "mark"), WRONG.values(), ids=list(WRONG))
def test_a_block_that_nobody_runs_is_seen(kind: str, body: str, mark: str) -> None:
    comment = f"<!-- {mark} -->\n" if mark else ""
    (block,) = blocks_of("page.md", f"Text.\n\n{comment}```{kind}\n{body}```\n")
    assert trouble(block)


@pytest.mark.parametrize(
    ("kind", "body", "error"),
    [
        ("yaml", "label: {column: a, task: regresion}\n", ValueError),
        ("yaml", "sources: {a: {kind: files, path: 1}}\n", ValueError),
        ("yaml", "type: it\nattributes: {name: a}\n", ValueError),
        ("json", "{a: 1}\n", ValueError),
        ("python", "from ml_assets import nothing_there\n", ImportError),
    ],
)
def test_a_block_that_does_not_work_fails(kind: str, body: str, error: type[Exception]) -> None:
    (block,) = blocks_of("page.md", f"```{kind}\n{body}```\n")
    with pytest.raises(error):
        trouble(block)
