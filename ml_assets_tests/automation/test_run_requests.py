"""What is asked for again: a run that was ended from outside is, one whose step failed is not."""

import os
import signal
import time

import dagster as dg
import pytest
from sqlalchemy.exc import OperationalError

from ml_assets.adapters.runs import PIPELINE_TAG
from ml_assets.automation.planner.candidate_runs import CandidateRun
from ml_assets.automation.planner.plan import Plan
from ml_assets.automation.planner.selection import ModelRun
from ml_assets.automation.run_requests import RUN_KEY_TAG, Cursor, RequestedRun, sort_out
from ml_assets.errors import SourceError


@dg.op
def told_to_end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)


@dg.op
def without_the_database() -> None:
    raise OperationalError("select 1", {}, ValueError("server closed the connection"))


@dg.op
def without_its_source() -> None:
    raise SourceError("the source is away") from OperationalError("select 1", {}, ValueError())


@dg.op
def broken() -> None:
    raise ValueError("the reason")


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("op", "again"),
    [
        (told_to_end, True),
        (without_the_database, True),
        (without_its_source, False),
        (broken, False),
    ],
)
def test_a_run_that_was_ended_from_outside_is_asked_for_again(
    op: dg.OpDefinition, again: bool
) -> None:
    model = ModelRun(Plan(()), sanity="", gates="", selection=None, as_of=None)
    candidate = CandidateRun("model", (), "these rows", "nothing", model)
    cursor = Cursor(asked={"model": RequestedRun(wanted="these rows", run_key="once")})
    job = dg.GraphDefinition("work", node_defs=[op]).to_job()
    tags = {RUN_KEY_TAG: "once", PIPELINE_TAG: "irises"}
    with dg.DagsterInstance.ephemeral() as instance:
        job.execute_in_process(instance=instance, raise_on_error=False, tags=tags)
        found = sort_out(instance, [candidate], cursor)
    assert found.fresh == (((candidate, 2),) if again else ())
    assert bool(found.held) is not again
