"""Every command that a page, a message or a manifest names exists, and takes the options shown."""

import re
from pathlib import Path

import pytest

from ml_assets_tests.cli.words import wrong_in_a_page, wrong_in_code, wrong_names

PROJECT = Path(__file__).parents[2]
PAGES = [PROJECT / "README.md", PROJECT / "deploy" / "README.md", *PROJECT.glob("docs/*.md")]
ARGS = re.compile(r"\[ml-assets, ([^\]]+)\]")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_the_commands_of_a_page_are_there(page: Path) -> None:
    assert wrong_in_a_page(page.read_text()) == []


@pytest.mark.parametrize("room", ["ml_assets", "benchmarks"])
def test_the_commands_that_the_code_names_are_there(room: str) -> None:
    wrong = {
        str(file.relative_to(PROJECT)): found
        for file in sorted((PROJECT / room).rglob("*.py"))
        if (found := wrong_in_code(file.read_text()))
    }
    assert wrong == {}


def test_the_commands_of_manifests_images_pages_and_the_makefile_are_there() -> None:
    files = [PROJECT / "Makefile", *PROJECT.glob(".github/**/*.yaml")]
    files += [*PROJECT.glob("deploy/**/*.yaml"), *PROJECT.glob("deploy/**/*.Dockerfile")]
    files += [*PROJECT.glob("ml_assets/**/*.yaml"), *PROJECT.glob("ml_assets/**/*.html")]
    wrong: dict[str, list[str]] = {}
    called = 0
    for file in files:
        lines = [line for line in file.read_text().splitlines() if "title=" not in line]
        text = "\n".join(line for line in lines if "COPY" not in line and "mkdir" not in line)
        given = ["ml-assets " + args.replace(",", "") for args in ARGS.findall(text)]
        called += len(given)
        found = [trouble for one in (text, *given) for trouble in wrong_names(one)]
        wrong |= {str(file): found} if found else {}
    assert wrong == {}
    assert called == 2, "the two logins serve the reports"


GONE = {
    "a flat name of before": "```sh\nml-assets rollback flight_delays\n```",
    "a flat name in a sentence": "See `ml-assets history P`.",
    "an option that there is not": "`ml-assets run P --slowly` takes long.",
    "an option in a block": "```sh\n.venv/bin/ml-assets ops gc --wet-run  # delete\n```",
    "an argument too many": "```sh\nML_ASSETS_HOME=x ml-assets status a b\n```",
    "an argument that is missing": "```sh\nml-assets run > log\n```",
    "a value that is none of the choices": "```sh\nml-assets run p --through the_end\n```",
    "one of several": "| `ml-assets data list\\|dif\\|tag` | states |",
}


@pytest.mark.parametrize("page", GONE.values(), ids=list(GONE))
def test_a_page_that_names_what_is_gone_is_seen(page: str) -> None:
    assert len(wrong_in_a_page(page)) == 1


def test_a_message_that_names_what_is_gone_is_seen() -> None:
    code = 'f"Nothing is there yet. Put it back:"\\\n f" ml-assets rollback {name} --to {model}"'
    assert wrong_in_code(code) == ["there is no `ml-assets rollback «» --to «»`"]
    assert wrong_in_code('"`ml-assets ops gc --dry-run` says it; ml-assets ops reset."') == []
