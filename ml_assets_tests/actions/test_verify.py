"""A release is verified by what was signed then; the spec of now is only compared with it."""

import shutil
from pathlib import Path

from ml_assets_tests.worlds.world import World


def test_a_typo_in_the_spec_makes_nothing_of_a_release_wrong(
    released: World, tmp_path: Path
) -> None:
    other = World(tmp_path, {"ML_ASSETS_HOME": str(released.settings.home)})
    shutil.copytree(released.pipelines / "irises", other.pipelines / "irises", dirs_exist_ok=True)
    spec = other.pipelines / "irises" / "defs.yaml"
    spec.write_text(spec.read_text().replace("attributes:", "atributes:"))
    said = other.cli("release", "verify", "irises")
    assert "irises: verified" in said
    assert "note     sources: nothing is compared with the spec of irises: irises: " in said
