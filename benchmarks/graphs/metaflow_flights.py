"""The bare script of the flights as a Metaflow flow: its own functions, a step each."""

from pathlib import Path

import bare_flights as bare
from metaflow import FlowSpec, Parameter, step


class Flights(FlowSpec):
    world = Parameter("world", required=True)
    scratch = Parameter("scratch", required=True)

    @step
    def start(self) -> None:
        self.spec = bare.load_spec(bare.PIPELINE)
        self.tables = bare.read_sources(Path(self.world), self.spec)
        self.next(self.features)

    @step
    def features(self) -> None:
        self.rows = bare.build_features(self.tables, self.spec)
        self.next(self.training_set)

    @step
    def training_set(self) -> None:
        splits = bare.split(self.rows)
        self.data = bare.write_set(splits, self.spec, Path(self.scratch))
        self.splits = {name: rows.collect() for name, rows in splits.items()}  # not plans
        self.next(self.train)

    @step
    def train(self) -> None:
        self.model = bare.train(self.spec, self.data, Path(self.scratch))
        self.next(self.end)

    @step
    def end(self) -> None:
        splits = {name: rows.lazy() for name, rows in self.splits.items()}
        self.report = bare.evaluate(self.spec, self.data, self.model, splits)
        bare.print_end(self.report)


if __name__ == "__main__":
    Flights()
