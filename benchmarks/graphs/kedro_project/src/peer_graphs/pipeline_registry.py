"""Which pipeline there is: three small steps, or where WORLD is set the bare script of flights."""

import os

from kedro.pipeline import Pipeline


def register_pipelines() -> dict[str, Pipeline]:
    if "WORLD" in os.environ:
        from peer_graphs.flights import flights

        return {"__default__": flights()}
    from peer_graphs.trivial import trivial

    return {"__default__": trivial()}
