"""docs/tutorial.md, command by command: what it says comes out, comes out."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "tutorial.md"
_BLOCK = re.compile(
    r"^```(?P<kind>sh|text|python)(?: (?P<how>[^\n]*))?\n(?P<body>.*?)^```$", re.M | re.S
)
_ANYTHING = "..."


def test_every_command_ends_and_says_what_the_tutorial_shows(tmp_path: Path) -> None:
    """A block of `sh` is run by bash; `exit=N` says how it ends. The `text` below it is what it
    says, line by line and in this order; `...` stands for anything. `python` is a file."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ML_ASSETS_")},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    exports, said = "", ""
    blocks = list(_BLOCK.finditer(PAGE.read_text()))
    assert len(blocks) > 15
    for block in blocks:
        kind, how, body = block["kind"], block["how"] or "", block["body"]
        if kind == "python":
            (tmp_path / how.removeprefix("file=")).write_text(body)
        elif kind == "sh":
            script = f"set -euo pipefail\n{exports}\n{body}"
            ran = subprocess.run(
                ["bash", "-c", script],
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                check=False,
            )
            said = ran.stdout.replace(str(tmp_path), "~")
            assert str(ran.returncode) in (how.removeprefix("exit=") or "0").split(","), body + said
            exports += "".join(
                f"{line}\n" for line in body.splitlines() if line.startswith("export ")
            )
        else:
            _require(body, said)


def _require(shown: str, said: str) -> None:
    place = 0
    for line in shown.splitlines():
        pattern = r"[^\n]*".join(re.escape(part) for part in line.strip().split(_ANYTHING))
        found = re.compile(pattern).search(said, place)
        assert found, f"{line!r} is not said, or not in this place:\n{said}"
        place = found.end()
