"""python -m ml_assets.training.staging --request s3://... --scratch DIR

The first process of a pod: it fetches the training program's inputs, checked against their digests;
runs the program, under torchrun if there is more than one process; uploads its events every second;
hands over its outputs, the result last; and ends with the program's true exit code (128 + n if
signal n ended it). docs/cluster.md says what lies where.
"""

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from ml_assets.errors import SettingsError
from ml_assets.spec.training_program.exit_codes import EXIT_BAD_REQUEST
from ml_assets.spec.training_program.pod import SAVE_SECONDS, shell_code
from ml_assets.training.staging.pod import NodeRendezvous, Pod, PodConfig
from ml_assets.training.stop import BadRequest


def main() -> int:
    """Parse, and work to the end."""
    parser = argparse.ArgumentParser(prog="python -m ml_assets.training.staging")
    parser.add_argument("--request", required=True, help="s3://.../attempts/<n>/request.json")
    parser.add_argument("--scratch", required=True, type=Path, help="an empty folder to work in")
    parser.add_argument("--rendezvous", help="host:port of the first pod, where there are several")
    parser.add_argument("--address", help="of this pod, as the others reach it")
    parser.add_argument(
        "--grace", type=float, default=SAVE_SECONDS, help="seconds to save after SIGTERM"
    )
    parser.add_argument(
        "--data-cache", type=int, help="bytes of the disk for rows that are fetched on demand"
    )
    given = parser.parse_args()
    if (given.rendezvous is None) != (given.address is None):
        parser.error("--rendezvous and --address belong together")
    index = int(os.environ.get("JOB_COMPLETION_INDEX") or 0)
    rendezvous = (
        NodeRendezvous(given.rendezvous, given.address, index) if given.rendezvous else None
    )
    try:
        pod = Pod(
            PodConfig(
                given.request, given.scratch, index, rendezvous, given.grace, given.data_cache
            )
        )
    except (SettingsError, BadRequest) as error:
        sys.stderr.write(f"[staging] {error}\n")
        return EXIT_BAD_REQUEST
    signal.signal(signal.SIGTERM, pod.on_notice)
    signal.signal(signal.SIGINT, pod.on_notice)
    return pod.run()


def _end(code: int) -> NoReturn:
    """End without waiting for threads: one may wait for a store that is away."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(shell_code(code))


if __name__ == "__main__":
    _end(main())
