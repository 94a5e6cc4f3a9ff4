"""The sensor of alerts: looks for problems in all pipelines, and reports each cause once."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg

from ml_assets.automation.tick_failures import COULD_NOT_TELL
from ml_assets.errors import MlAssetsError
from ml_assets.records.tracking.links import Links
from ml_assets.settings import Settings

if TYPE_CHECKING:
    from ml_assets.automation.alerts.media import Recipient

NAME = "alerts"
SECONDS_BETWEEN_TICKS = 60
TICK_SECONDS = 25.0
"""For all messages of a tick together; Dagster ends a tick after sixty."""


def definitions(settings: Settings) -> dg.Definitions:
    """The sensor, where ML_ASSETS_ALERTS says who is to be told.

    Raises:
        SettingsError: an address cannot be used.
    """
    if not settings.alerts:
        return dg.Definitions()
    from ml_assets.automation.alerts.media import recipients

    return dg.Definitions(
        sensors=[_sensor(recipients(settings.alerts, settings.webhook_secret), Links.of(settings))]
    )


def alerts_tick(
    instance: dg.DagsterInstance,
    repository: dg.RepositoryDefinition,
    to: "Sequence[Recipient]",
    links: Links,
    now: datetime,
) -> dg.SensorResult:
    """One look; what it did, or why it could not, is its reason to start no run."""
    from ml_assets.automation.alerts.causes import causes_now
    from ml_assets.automation.alerts.delivery import deliver
    from ml_assets.automation.alerts.reported import tell

    try:
        causes = causes_now(instance, repository, links, now)
        store = instance.daemon_cursor_storage
        done = tell(causes, to, store, deliver, now, TICK_SECONDS)
    except MlAssetsError as error:
        return dg.SensorResult(skip_reason=" ".join(str(error).split()))
    return dg.SensorResult(skip_reason=f"{COULD_NOT_TELL if done.failed else ''}{done}.")


def last_tick(instance: dg.DagsterInstance) -> datetime | None:
    """When the sensor looked last; None: it never did."""
    states = [one for one in instance.all_instigator_state() if one.instigator_name == NAME]
    ticks = [
        tick.timestamp
        for one in states
        for tick in instance.get_ticks(one.instigator_origin_id, one.selector_id, limit=1)
    ]
    return datetime.fromtimestamp(max(ticks), UTC) if ticks else None


def _sensor(to: "Sequence[Recipient]", links: Links) -> dg.SensorDefinition:
    told = ", ".join(recipient.shown for recipient in to)

    @dg.sensor(
        name=NAME,
        description="Sends an alert when a contract or a run fails, data drifts or is stale, or"
        f" a run never starts: one for each cause, until the cause is gone. Recipients: {told}.",
        minimum_interval_seconds=SECONDS_BETWEEN_TICKS,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        repository = context.repository_def
        assert repository is not None
        return alerts_tick(context.instance, repository, to, links, datetime.now(UTC))

    return evaluate
