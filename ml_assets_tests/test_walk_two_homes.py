"""Two homes with disks of their own that share an object store on S3 and the snapshot store."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from ml_assets_tests.servers.s3 import BUCKET, SECRET, S3Server
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(900)]  # two walks


def test_a_second_home_has_what_the_first_one_made_and_goes_on_with_it(
    bucket: S3Server, tmp_path: Path
) -> None:
    stores = {
        "ML_ASSETS_OBJECTS": f"s3://{BUCKET}/state",
        "ML_ASSETS_SNAPSHOTS": str(tmp_path / "snapshots"),
    }
    first = World(tmp_path, {**stores, "ML_ASSETS_HOME": str(tmp_path / "first")})
    second = World(tmp_path, {**stores, "ML_ASSETS_HOME": str(tmp_path / "second")})
    irises.plant(first.pipelines, first.sources)
    first.cli("run", "irises")
    shutil.rmtree(tmp_path / "first" / "objects")  # its disk was ephemeral
    assert known(second) == known(first)
    told = [line for line in second.cli("run", "irises").splitlines() if "irises/" in line]
    assert told and all(line.startswith("skip") for line in told)
    second.cli("release", "verify", "irises")
    page = Path(second.cli("models", "report", "irises").splitlines()[-1])
    assert page.is_file() and page.is_relative_to(tmp_path / "second")
    irises.write_flowers(first.sources, "versicolor")
    # the first one's model is fetched, scored again and compared with; here it happens to win
    assert "log-loss minus that of champion" in second.cli("run", "irises", code=3)
    assert known(second) == known(first)
    assert SECRET not in "".join(f.read_text() for f in tmp_path.rglob("sessions/**/*.json*"))


def known(world: World) -> dict[str, Any]:
    """What a home knows, but for examinations: those count that it countersigned itself."""
    return {name: said for name, said in world.status("irises").items() if name != "sanity"}
