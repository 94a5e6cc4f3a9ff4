"""The three steps as a Kedro pipeline, run by a session of its project."""

import sys
from pathlib import Path

import plain
from kedro.framework.session import KedroSession
from kedro.framework.startup import bootstrap_project

PROJECT = Path(__file__).with_name("kedro_project")
TABLE = sys.argv[1]


def run() -> None:
    with KedroSession.create(PROJECT, runtime_params={"table": TABLE}) as session:
        session.run()


if __name__ == "__main__":
    bootstrap_project(PROJECT)
    plain.take(run, TABLE, int(sys.argv[2]))
