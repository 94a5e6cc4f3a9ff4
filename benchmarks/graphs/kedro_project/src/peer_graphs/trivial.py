"""Three small steps as a Kedro pipeline."""

import plain
from kedro.pipeline import Pipeline, node, pipeline


def trivial() -> Pipeline:
    return pipeline(
        [
            node(plain.read, "params:table", "rows"),
            node(plain.validate, "rows", "valid"),
            node(plain.features, "valid", "features"),
        ]
    )
