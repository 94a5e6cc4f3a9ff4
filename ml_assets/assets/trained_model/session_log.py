"""Writes the events of a run's training sessions to the run's log, and records their names for
later readers of the log."""

from ml_assets.adapters.step import Instance, RunLog
from ml_assets.launch.launcher import OnEvent
from ml_assets.launch.session_name import SESSIONS_TAG
from ml_assets.spec.program.events import Event, Failed, Progress, Warning


def remember_session(instance: Instance, run_id: str, session: str) -> None:
    """Add a session to the run's tags; safe to repeat."""
    run = instance.get_run_by_id(run_id)
    if run is None:
        return
    known = run.tags.get(SESSIONS_TAG, "").split()
    if session not in known:
        instance.add_run_tags(run_id, {SESSIONS_TAG: " ".join([*known, session])})


def teller(log: RunLog) -> OnEvent:
    """Passes what a session says in words on to a run's log."""

    def tell(event: Event) -> None:
        match event:
            case Progress():
                log.info(event.message)
            case Warning():
                log.warning(event.message)
            case Failed():
                log.error(event.reason)
            case _:
                pass

    return tell
