"""Reports ticks that could not look: then nothing runs and nothing fails, so an alert says it."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
from dagster_shared.error import SerializableErrorInfo

from ml_assets.adapters.runs import own_cause, own_words
from ml_assets.errors import MlAssetsError, WindowError, is_ours

COULD_NOT = "could not check: "
COULD_NOT_TELL = "could not send all alerts: "
"""How a failure of the alerts' ticks begins: whoever can be told is told of it."""
_STOPPED = "DagsterExecutionInterruptedError"
_IN_A_ROW = 2
"""Ticks of a sensor: what one alone could not see, the next may."""


def why_not(error: MlAssetsError) -> str:
    """The reason of a tick that asks for nothing because of an error.

    That there is not enough data yet is no trouble: it is what a tick looks for.
    """
    said = " ".join(str(error).split())
    return said if isinstance(error, WindowError) else f"{COULD_NOT}{said}"


def tick_failures(
    instance: dg.DagsterInstance, repository: dg.RepositoryDefinition
) -> Iterator[tuple[str, str]]:
    """Sensors and schedules whose last ticks could not look or tell, or broke; and their words."""
    for state in instance.all_instigator_state():
        name = state.instigator_name
        known = repository.has_sensor_def(name) or repository.has_schedule_def(name)
        if known and state.is_running:
            said = [_trouble(tick) for tick in _last(instance, state)]
            if said and all(said):
                yield name, said[0]


def error_words(error: SerializableErrorInfo, where: str) -> str:
    """Our own error's words, which hold no secret; of any other its name, and where it was."""
    if error.cls_name == _STOPPED:
        return f"it was stopped in {where}"
    cause = own_cause(error)
    return own_words(cause) if is_ours(cause.cls_name) else f"{cause.cls_name} in {where}"


def _last(instance: dg.DagsterInstance, state: Any) -> list[Any]:
    """The ticks that have ended, of the state of a sensor or a schedule, the newest first."""
    ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=_IN_A_ROW + 1)
    ended = [tick for tick in ticks if tick.status.value != "STARTED"]
    of_a_schedule = state.instigator_type.value == "SCHEDULE"
    return ended[: 1 if of_a_schedule else _IN_A_ROW]


def _trouble(tick: Any) -> str:
    """What was wrong with a tick; empty where nothing was."""
    if tick.is_failure:
        said = error_words(tick.error, "its tick") if tick.error else "its tick failed"
        return f"{COULD_NOT}{said}"
    said = tick.skip_reason or ""
    return said if said.startswith((COULD_NOT, COULD_NOT_TELL)) else ""
