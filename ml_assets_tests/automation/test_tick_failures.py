"""A sensor that cannot look starts no run and fails none: it is told all the same."""

from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg
import pytest
from dagster._core.scheduler.instigation import InstigatorState
from dagster_shared.error import SerializableErrorInfo

from ml_assets.automation.alerts.causes import causes_now
from ml_assets.automation.tick_failures import COULD_NOT, COULD_NOT_TELL, why_not
from ml_assets.errors import SourceError, WindowError
from ml_assets.records.tracking.links import Links
from ml_assets_tests.worlds.ticks import switch, tick

GONE = why_not(SourceError("orders: there is no landing folder /data/orders"))
FINE = "12 partitions landed; everything that landed is published."
BROKE = SerializableErrorInfo("postgres://ann:s3cr3t@host", [], "OperationalError")


class Automation:
    """A pipeline's sensor and schedule, and the ticks that the daemon has noted."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        @dg.asset
        def table() -> None: ...

        job = dg.define_asset_job("p__job", [table])
        sensor = dg.SensorDefinition(
            "p__landing", evaluation_fn=lambda _: dg.SkipReason(FINE), job=job
        )
        schedule = dg.ScheduleDefinition(
            name="p__refresh_schedule", job=job, cron_schedule="@daily"
        )
        defs = dg.Definitions([table], [schedule], [sensor], [job])
        self.repository = defs.get_repository_def()
        self.instance = instance
        self._states: dict[str, InstigatorState] = {}

    def has(self, name: str, cron: str = "", *, on: bool = True) -> None:
        """Switch a sensor, or with ``cron`` a schedule, on or off."""
        self._states[name] = switch(self.instance, name, cron, on=on)

    def tick(self, name: str, said: str = "", error: SerializableErrorInfo | None = None) -> None:
        tick(self.instance, self._states[name], said=said, error=error)

    def told(self) -> list[str]:
        links = Links("https://d", "r", "m")
        found = causes_now(self.instance, self.repository, links, datetime.now(UTC))
        assert all(cause.kind == "run that never started" for cause in found)
        assert all(cause.pipeline == "p" for cause in found)
        assert all(cause.link == "https://d/automation" for cause in found)
        return [cause.what for cause in found]


@pytest.fixture
def automation() -> Iterator[Automation]:
    with dg.instance_for_test() as instance:
        yield Automation(instance)


def test_a_sensor_that_cannot_look_twice_is_told_until_it_can(automation: Automation) -> None:
    automation.has("p__landing")
    automation.tick("p__landing", FINE)
    automation.tick("p__landing", GONE)
    assert automation.told() == [], "the next look may be better"
    automation.tick("p__landing", GONE)
    assert automation.told() == [f"p__landing {GONE}"]
    assert "no landing folder /data/orders" in GONE
    automation.tick("p__landing", FINE)
    assert automation.told() == []


def test_a_recipient_that_takes_nothing_twice_is_told_of_to_the_others(
    automation: Automation,
) -> None:
    mute = f"{COULD_NOT_TELL}1 open; webhook hooks.example.org: it answered 404."
    automation.has("p__landing")
    automation.tick("p__landing", "0 open.")
    automation.tick("p__landing", mute)
    assert automation.told() == []
    automation.tick("p__landing", mute)
    assert automation.told() == [f"p__landing {mute}"]
    automation.tick("p__landing", "0 open; 1 gone.")
    assert automation.told() == []


def test_a_tick_that_broke_is_told_without_what_a_foreign_error_says(
    automation: Automation,
) -> None:
    automation.has("p__refresh_schedule", "@daily")
    automation.tick("p__refresh_schedule", error=BROKE)
    (said,) = automation.told()
    assert said == f"p__refresh_schedule {COULD_NOT}OperationalError in its tick"


def test_what_was_switched_off_is_not_told(automation: Automation) -> None:
    automation.has("p__refresh_schedule", "@daily", on=False)
    automation.tick("p__refresh_schedule", error=BROKE)
    assert automation.told() == []


def test_data_that_is_not_all_there_yet_is_no_trouble() -> None:
    assert not why_not(WindowError("9 partitions are needed")).startswith(COULD_NOT)
