"""Secrets of the environment are in nothing that a run leaves or says, whether it ends well or not.

The scene's environment holds a canary in every secret; three runs (passed, released, refused) were
made with it, and one that cannot reach its SQL source.
"""

import base64
from collections.abc import Iterator
from pathlib import Path

from ml_assets_tests.red_team.conftest import CANARY, SECRETS, SIGNING_KEY, Scene
from ml_assets_tests.worlds import irises

NEEDLES = (CANARY.encode(), SIGNING_KEY.encode(), base64.b64decode(SIGNING_KEY))
SQL = """\
      kind: sql
      connection: WAREHOUSE
      table: flowers
      partitioned: false
"""
FILES = """\
      kind: files
      path: irises.csv
      format: csv
      partitioned: false
"""


def found_in(folder: Path) -> Iterator[str]:
    """Files whose bytes hold a secret: databases and their logs too, page by page."""
    for file in folder.rglob("*"):
        if file.is_file() and any(needle in file.read_bytes() for needle in NEEDLES):
            yield str(file.relative_to(folder))


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(f"connecting to {SECRETS['ML_ASSETS_SQL_WAREHOUSE']}")
    (tmp_path / "key").write_bytes(b"..." + base64.b64decode(SIGNING_KEY))
    assert sorted(found_in(tmp_path)) == ["key", "log.txt"]


def test_no_secret_is_in_what_the_runs_left_or_said(refused: Scene) -> None:
    root = refused.world.root
    kinds = {file.suffix for file in (root / "refused").rglob("*") if file.is_file()}
    assert {".db", ".json", ".html", ".txt", ".jsonl", ".npy", ".safetensors"} <= kinds
    for state in ("passed", "released", "refused"):
        assert list(found_in(root / state)) == []
    assert CANARY not in "".join(refused.outputs)


def test_no_secret_is_in_what_a_failed_run_left_or_said(refused: Scene) -> None:
    world = refused.world
    folder = world.pipelines / "tolls"
    folder.mkdir()
    try:
        spec = irises.SPEC.replace(FILES, SQL).replace("name: irises", "name: tolls")
        assert "connection: WAREHOUSE" in spec
        (folder / "defs.yaml").write_text(spec)
        (folder / "features.py").write_text(irises.FEATURES)
        (folder / "flowers.json").write_text((world.pipelines / "irises/flowers.json").read_text())
        said = world.cli("run", "tolls", code=1)
        said += world.cli("ops", "logs", "latest", code=1)
        said += world.cli("check")
    finally:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    assert "WAREHOUSE" in said
    assert not any(needle.decode("latin-1") in said for needle in NEEDLES)
    assert list(found_in(refused.state)) == []
