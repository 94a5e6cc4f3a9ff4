"""The three steps as a pipeline here: a snapshot, a table that meets its contract, features."""

import sys

import plain

from ml_assets.cli.main import main


def run() -> None:
    assert main(["run", "trivial", "--through", "feature_set"]) == 0


if __name__ == "__main__":
    plain.take(run, sys.argv[1], int(sys.argv[2]))
