"""ml-assets logs: everything that one run said."""

import argparse
import time

from ml_assets.cli.exit_codes import DONE, ERROR
from ml_assets.cli.session import prepared_settings

_POLL_SECONDS = 0.5


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "logs",
        help="everything that a run said: Dagster, its steps, the training program",
        description="Events and messages of a Dagster run, what its steps printed, and what every"
        " rank of the training program printed, in the order of time (UTC). Exits 1 if the run"
        " failed.",
    )
    parser.add_argument("run", help="its id, a unique beginning of it, or latest")
    parser.add_argument("--follow", action="store_true", help="go on until the run ends")
    parser.set_defaults(call=call)


def call(arguments: argparse.Namespace) -> int:
    settings = prepared_settings()
    import dagster as dg

    from ml_assets.actions.logs import RunLog, find_run

    with dg.DagsterInstance.get() as instance:
        run = find_run(instance, arguments.run)
        log = RunLog(instance, run.run_id, settings.cache / "sessions")
        while True:
            ended = log.has_ended  # asked first: what was said before the end is then read
            for line in log.new():
                print(f"{line.time:%H:%M:%S.%f}"[:-3], f"{line.origin:28} {line.text}", flush=True)
            if ended or not arguments.follow:
                break
            time.sleep(_POLL_SECONDS)
        status = log.run.status
    print(f"run {run.run_id}: {status.value}")
    return ERROR if status in (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED) else DONE
