"""Launches runs through the served Dagster, with the same queue, pools, launcher and tags as any
run.

The UI's GraphQL, which knows the code location, launches a run; its progress is read from the
instance.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import dagster as dg

from ml_assets.adapters.runs import TRIGGER_TAG, open_instance
from ml_assets.errors import MlAssetsError, outside

_LAUNCH_TAG = "ml_assets/launch"
"""Of a run: the request that asked for it, to be found by where no answer came."""


class DagsterAway(MlAssetsError):
    """The Dagster UI does not answer; the message says whether a run may have been launched."""


class LaunchRefused(MlAssetsError):
    """Dagster takes no such run; the message gives its reason."""


def launch(
    ui_url: str,
    job: str,
    config: Mapping[str, Any],
    tags: Mapping[str, str],
    assets: Sequence[Sequence[str]] | None = None,
) -> str:
    """Ask the Dagster at an address for a run of a job; the run's id.

    Args:
        assets: paths of the job's assets that are made; None: all of them.

    Raises:
        DagsterAway: it does not answer.
        LaunchRefused: it takes no such run.
    """
    from dagster_graphql import DagsterGraphQLClient, DagsterGraphQLClientError

    where = urlsplit(ui_url)
    client = DagsterGraphQLClient(
        where.hostname or "",
        where.port,
        use_https=where.scheme == "https",
        timeout=60,
        path_prefix=where.path.rstrip("/"),
    )
    launched = uuid4().hex
    selected = None if assets is None else [dg.AssetKey([*path]) for path in assets]
    try:
        return client.submit_job_execution(
            job,
            run_config=dict(config),
            tags={**tags, _LAUNCH_TAG: launched},
            asset_selection=selected,
        )
    except DagsterGraphQLClientError as error:
        if _never_connected(error):
            raise DagsterAway(
                f"Dagster does not answer at {ui_url} (ML_ASSETS_UI_URL): nothing was launched."
                " Start it: ml-assets ui"
            ) from error
        if error.__cause__ is not None:
            begun = None
            with suppress(Exception):  # Dagster's database may be away, too
                begun = tagged_run(_LAUNCH_TAG, launched)
            if begun:
                return begun[0]
            raise DagsterAway(
                f"Dagster was asked at {ui_url} (ML_ASSETS_UI_URL), and no whole answer came: it"
                " may still launch the run. Look at its runs before you ask again."
            ) from error
        raise LaunchRefused(f"Dagster takes no such run: {outside(str(error))}") from error


def _never_connected(error: BaseException | None) -> bool:
    """Whether the request never left this machine, as far as urllib3 tells."""
    from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

    while error is not None:
        found = (error, *error.args, *(getattr(one, "reason", None) for one in error.args))
        if any(isinstance(one, NewConnectionError | ConnectTimeoutError) for one in found):
            return True
        error = error.__cause__ or error.__context__
    return False


def tagged_run(tag: str, value: str) -> tuple[str, Mapping[str, str]] | None:
    """The newest run with this tag: its id and all its tags; None: there is none."""
    with open_instance() as instance:
        runs = instance.get_runs(filters=dg.RunsFilter(tags={tag: value}), limit=1)
    return (runs[0].run_id, runs[0].tags) if runs else None


def run_status(run_id: str) -> Mapping[str, Any] | None:
    """A run as Dagster keeps it: status, job, why, begin and end; None: there is no such run."""
    with open_instance() as instance:
        record = instance.get_run_record_by_id(run_id)
    if record is None:
        return None
    run = record.dagster_run
    return {
        "run_id": run.run_id,
        "job": run.job_name,
        "status": run.status.value.lower(),
        "trigger": run.tags.get(TRIGGER_TAG, "by hand"),
        "config": run.run_config,
        "created": record.create_timestamp.isoformat(),
        "began": record.start_time,
        "ended": record.end_time,
    }
