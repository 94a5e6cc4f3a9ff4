"""Irises with a search: a study of a few short trainings, one process each."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

SEARCH = """\
search:
  method: quasi_random
  then: {method: tpe, after: 4}
  trials: 6
  parallel: 2
  prune: {kind: successive_halving, min_share: 0.2}
  seeds: 2
  adopt: true
  parameters:
    training.learning_rate: {kind: log_float, low: 0.0001, high: 0.1}
    model.width: {kind: choice, values: [8, 32], role: scientific}
    model.dropout: {role: fixed, value: 0.0}
"""


def plant(
    root: Path,
    search: str = SEARCH,
    rate: float = 0.01,
    extra: Mapping[str, str] = MappingProxyType({}),
) -> World:
    """A world whose irises have a search.

    Args:
        rate: the learning rate of the spec itself.
        extra: more of the environment.
    """
    world = World(root, extra).plant(irises)
    spec = world.pipelines / "irises" / "defs.yaml"
    spec.write_text(spec.read_text().replace("learning_rate: 0.01", f"learning_rate: {rate}"))
    (world.pipelines / "irises" / "search.yaml").write_text(search)
    return world
