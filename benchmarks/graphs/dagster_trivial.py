"""The three steps on plain Dagster: three assets, materialized in this process."""

import sys

import dagster as dg
import plain

TABLE = sys.argv[1]


@dg.asset
def rows() -> plain.Rows:
    return plain.read(TABLE)


@dg.asset
def valid(rows: plain.Rows) -> plain.Rows:
    return plain.validate(rows)


@dg.asset
def features(valid: plain.Rows) -> plain.Rows:
    return plain.features(valid)


def run() -> None:
    with dg.DagsterInstance.get() as instance:
        assert dg.materialize([rows, valid, features], instance=instance).success


if __name__ == "__main__":
    plain.take(run, TABLE, int(sys.argv[2]))
