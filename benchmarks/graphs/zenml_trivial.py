"""The three steps on ZenML's local stack."""

import sys

import plain
from zenml import pipeline, step

TABLE = sys.argv[1]


@step
def read() -> list:
    return plain.read(TABLE)


@step
def validate(rows: list) -> list:
    return plain.validate(rows)


@step
def features(rows: list) -> list:
    return plain.features(rows)


@pipeline(enable_cache=False)
def trivial() -> None:
    features(validate(read()))


if __name__ == "__main__":
    plain.take(trivial, TABLE, int(sys.argv[2]))
