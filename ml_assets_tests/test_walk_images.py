"""docs/network.md: its images become a table, its network a release, and the release is proved."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from ml_assets.spec.documents import read_yaml
from ml_assets_tests.test_docs import PROJECT, blocks_of
from ml_assets_tests.worlds.world import World

pytest.importorskip("sklearn", reason="the images are scikit-learn's")
PAGE = (PROJECT / "docs" / "network.md").read_text().partition("## Images,")[2]
TABLE, COMMAND, NETWORK, SPEC, *_ = blocks_of("network.md", PAGE.partition("\n## ")[0])


def test_the_images_of_the_page_are_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(compile(TABLE.body, "docs/network.md", "exec"), {})
    world.cli(*COMMAND.body.split()[1:])
    folder = world.pipelines / "pixels"
    (folder / "network.py").write_text(NETWORK.body)
    file = folder / "defs.yaml"
    spec: dict[str, Any] = yaml.safe_load(file.read_text())
    spec["attributes"] |= read_yaml(SPEC.body)
    file.write_text(yaml.safe_dump(spec, sort_keys=False))
    deep = world.cli("check", "pixels", "--deep")
    assert "[FAIL]" not in deep and "[warn]" not in deep and "microbatch" in deep
    world.cli("run", "pixels")
    assert "is equal, byte by byte" in world.cli("release", "prove", "pixels")
    (folder / "network.py").unlink()
    table = str(tmp_path / "digits.parquet")
    assert len(world.cli("predict", "pixels", table).splitlines()) == 1798, "by the code it keeps"
