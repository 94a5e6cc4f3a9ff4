"""A clock that runs ahead and is put right: what is decided and proved does not hang on it."""

from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from ml_assets.graph import publish
from ml_assets_tests.conftest import Cli
from ml_assets_tests.worlds import irises
from ml_assets_tests.worlds.world import World

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(600)]


class Ahead(datetime):
    """A clock that is a day ahead."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        return datetime.now(tz) + timedelta(days=1)


def test_a_release_whose_data_was_made_by_a_clock_ahead_is_proved_with_its_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    world = World(tmp_path).plant(irises)
    world.enter(monkeypatch)
    with pytest.MonkeyPatch.context() as ahead:
        ahead.setattr(publish, "datetime", Ahead)
        cli("run", "irises", "--through", "evaluation_report")
    world.cli("run", "irises")
    world.cli("release", "verify", "irises")
    for which in ("irises",), ("irises", "latest"):
        proved = cli("release", "prove", *which).out
        assert proved.count("equal    irises/gates: passed") == 1
