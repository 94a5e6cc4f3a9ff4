"""Which sessions of the training program a run asked for, written where its logs are sought."""

import dagster as dg

SESSIONS_TAG = "ml_assets/sessions"
"""Tag of a run: the sessions of the training program that it asked for, with spaces between."""


def remember_session(instance: dg.DagsterInstance, run_id: str, session: str) -> None:
    """Add a session to the run's tags; safe to repeat."""
    run = instance.get_run_by_id(run_id)
    if run is None:
        return
    known = run.tags.get(SESSIONS_TAG, "").split()
    if session not in known:
        instance.add_run_tags(run_id, {SESSIONS_TAG: " ".join([*known, session])})
