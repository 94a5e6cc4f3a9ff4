"""docs/tutorial.md, command by command: what it says comes out, comes out."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(?P<kind>\w+)(?: (?P<how>[^\n]*))?\n(?P<body>.*?)^```$", re.M | re.S)
DIFFERS = re.compile(
    r"(?P<anything>\.\.\.)"
    r"|(?P<version>\b(?=[0-9a-f]*\d)[0-9a-f]{12}\b)"
    r"|(?P<number>\d+\.\d+)"
)
MEANS = {"anything": r"[^\n]*", "version": "[0-9a-f]{12}", "number": r"\d+\.\d+(e[+-]?\d+)?"}


@pytest.mark.timeout(1800)
def test_every_command_ends_and_says_what_the_tutorial_shows(tmp_path: Path) -> None:
    """A block of `sh` is run by bash; `exit=N` says how it ends. The `text` below it is what it
    says, in this order, with lines between them left out; `python file=NAME` is a file."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ML_ASSETS_")},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    exports, said, shown = "", "", 0
    for block in BLOCK.finditer(PAGE.read_text()):
        kind, how, body = block["kind"], block["how"] or "", block["body"]
        if kind == "python":
            (tmp_path / how.removeprefix("file=")).write_text(body)
        elif kind == "sh":
            ran = subprocess.run(
                ["bash", "-c", f"set -euo pipefail\n{exports}\n{body}"],
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                check=False,
            )
            said = ran.stdout.replace(str(tmp_path), "~")
            assert ran.returncode == int(how.removeprefix("exit=") or 0), body + said
            exports += "".join(
                f"{line}\n" for line in body.splitlines() if line.startswith("export ")
            )
        else:
            assert kind == "text"
            missing = not_said(body, said)
            assert missing is None, f"{missing!r} is not said, or not in this place:\n{said}"
            shown += 1
    assert shown > 10


def not_said(shown: str, said: str) -> str | None:
    """The first line that is shown and was not said, in this order; None: all were."""
    place = 0
    for line in shown.splitlines():
        found = re.compile(_pattern(line.strip())).search(said, place)
        if found is None:
            return line
        place = found.end()
    return None


def _pattern(line: str) -> str:
    """What a line may look like: versions and digits behind a point differ from machine to
    machine."""
    parts, place = list[str](), 0
    for found in DIFFERS.finditer(line):
        parts += [re.escape(line[place : found.start()]), MEANS[found.lastgroup or ""]]
        place = found.end()
    return "".join([*parts, re.escape(line[place:])])


@pytest.mark.parametrize(
    ("shown", "same"),
    [
        ("model 8362dae2c32e, rmse 8.2895", True),
        ("made ... (15 partitions)", True),
        ("made ... (16 partitions)", False),
        ("rmse 8.2895\nmodel 8362dae2c32e", False),
        ("model is refused", False),
    ],
)
def test_what_differs_from_machine_to_machine_is_let_pass_and_nothing_else(
    shown: str, same: bool
) -> None:
    said = "model 9339c41180cb, rmse 7.9448\nmade raw_snapshot (15 partitions)\n"
    assert (not_said(shown, said) is None) == same
