"""A feature that knows how late the flight will be: the model gets too good, and is refused."""

from typing import Any

from ml_assets.runs.plants.ground import Ground, Outcome, refused_by

_PLANT = '''

_honest = build


def build(tables: Mapping[str, pl.LazyFrame], window: Window) -> pl.LazyFrame:
    """PLANTED: with the flight's own delay, which nobody knows before it has landed."""
    delay = pl.col("arr_delay").cast(pl.Float64).alias("own_delay")
    leak = tables["arrivals"].select(*FLIGHT, delay)
    return _honest(tables, window).join(leak, on=FLIGHT, how="left", maintain_order="left")
'''


def plant(ground: Ground) -> Outcome:
    """Plant the feature, run, and see the leak alarm refuse the model."""
    ground.prepare(_with_the_feature)
    function = ground.declared / "features.py"
    function.write_text(function.read_text() + _PLANT)
    ran = ground.command("run", ground.pipeline)
    held, caught = refused_by(ground, "leak_alarm", ran)
    return Outcome(
        held,
        "the feature own_delay: how late the very flight arrives, joined without asking when that"
        " is known",
        caught,
        "nothing is released" if ground.released() is None else "THE MODEL IS RELEASED",
        ground.look(f"history {ground.pipeline}", f"report {ground.pipeline} --open"),
    )


def _with_the_feature(spec: dict[str, Any]) -> None:
    spec["features"]["numeric"].append("own_delay")
