"""The three steps as a Metaflow flow, which runs each in a process of its own."""

import plain
from metaflow import FlowSpec, Parameter, step


class Trivial(FlowSpec):
    table = Parameter("table", required=True)

    @step
    def start(self) -> None:
        self.rows = plain.read(self.table)
        self.next(self.validate)

    @step
    def validate(self) -> None:
        self.valid = plain.validate(self.rows)
        self.next(self.end)

    @step
    def end(self) -> None:
        self.features = plain.features(self.valid)


if __name__ == "__main__":
    Trivial()
