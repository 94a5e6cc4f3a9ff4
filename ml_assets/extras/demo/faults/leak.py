"""A feature that knows how late the flight will be: replayed at its moment, it comes out otherwise.

Were that guard away, the next one finds it: a model that is too good to be true.
"""

from typing import Any

from ml_assets.assets.feature_set.parity import CHECK_NAME
from ml_assets.extras.demo.faults.ground import Ground, InjectionResult
from ml_assets.store.layout import Address, published_partitions

_PLANT = '''

_honest = build


def build(tables: Mapping[str, pl.LazyFrame], window: Window) -> pl.LazyFrame:
    """PLANTED: with the flight's own delay, which nobody knows before it has landed."""
    delay = pl.col("arr_delay").cast(pl.Float64).alias("own_delay")
    leak = tables["arrivals"].select(*FLIGHT, delay)
    return _honest(tables, window).join(leak, on=FLIGHT, how="left", maintain_order="left")
'''


def plant(ground: Ground) -> InjectionResult:
    """Plant the feature, run, and see that no feature row is published."""
    ground.prepare(_with_the_feature)
    function = ground.declared / "features.py"
    function.write_text(function.read_text() + _PLANT)
    ran = ground.command("run", ground.pipeline)
    said = next((line for line in ran.lines if "'own_delay' of" in line), "").strip()
    store, features = ground.place().store, Address(ground.pipeline, "feature_set")
    published = published_partitions(store, store.resolve("main"), features)
    nothing = not published and ground.released() is None
    return InjectionResult(
        bool(said) and ran.code == _FAILED and nothing,
        "the feature own_delay: how late the very flight arrives, joined without asking when that"
        " is known",
        f"the check {CHECK_NAME} of feature_set: {said}" if said else f"no check, code {ran.code}",
        "no feature row is published, so nothing is trained"
        if nothing
        else f"{len(published)} WEEKS OF FEATURES ARE PUBLISHED",
        ground.look(f"run {ground.pipeline}"),
    )


def _with_the_feature(spec: dict[str, Any]) -> None:
    spec["features"]["numeric"].append("own_delay")


_FAILED = 1
"""Exit code of a run in which a step failed."""
