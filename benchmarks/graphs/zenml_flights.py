"""The bare script of the flights on ZenML's local stack: its own functions, a step each."""

import sys
from pathlib import Path

import bare_flights as bare
import polars as pl
from zenml import pipeline, step

from ml_assets.spec.records import EvaluationReport
from ml_assets.spec.training_program import Ref

WORLD, SCRATCH = Path(sys.argv[1]), Path(sys.argv[2])
SPEC = bare.load_spec(bare.PIPELINE)


@step
def read_sources() -> dict:
    return bare.read_sources(WORLD, SPEC)


@step
def features(tables: dict) -> pl.DataFrame:
    return bare.build_features(tables, SPEC)


@step
def split(rows: pl.DataFrame) -> dict:
    return {name: split.collect() for name, split in bare.split(rows).items()}  # not plans


@step
def training_set(splits: dict) -> Ref:
    return bare.write_set(lazy(splits), SPEC, SCRATCH)


@step
def train(data: Ref) -> Ref:
    return bare.train(SPEC, data, SCRATCH)


@step
def evaluate(data: Ref, model: Ref, splits: dict) -> EvaluationReport:
    report = bare.evaluate(SPEC, data, model, lazy(splits))
    bare.print_end(report)
    return report


@pipeline(enable_cache=False)
def flights() -> None:
    splits = split(features(read_sources()))
    data = training_set(splits)
    evaluate(data, train(data), splits)


def lazy(splits: dict[str, pl.DataFrame]) -> dict:
    return {name: rows.lazy() for name, rows in splits.items()}


if __name__ == "__main__":
    flights()
