"""The bare script of the flights as a Kedro pipeline: its own functions, a node each."""

from functools import partial
from pathlib import Path

import bare_flights as bare
from kedro.pipeline import Pipeline, node, pipeline


def flights() -> Pipeline:
    return pipeline(
        [
            node(Path, "params:world", "world"),
            node(Path, "params:scratch", "scratch"),
            node(partial(bare.load_spec, bare.PIPELINE), None, "spec", name="spec"),
            node(bare.read_sources, ["world", "spec"], "tables"),
            node(bare.build_features, ["tables", "spec"], "rows"),
            node(bare.split, "rows", "splits"),
            node(bare.write_set, ["splits", "spec", "scratch"], "data"),
            node(bare.train, ["spec", "data", "scratch"], "model"),
            node(bare.evaluate, ["spec", "data", "model", "splits"], "report"),
            node(bare.print_end, "report", None),
        ]
    )
