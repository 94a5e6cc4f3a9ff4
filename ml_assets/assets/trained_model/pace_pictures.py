"""How fast a training went, and where the time of its steps went: pictures and final numbers."""

from collections.abc import Mapping
from statistics import fmean, median

from ml_assets.reports.drawing import Axis, Series, Stack, column_chart, line_chart
from ml_assets.reports.picture import Picture

Metrics = Mapping[int, Mapping[str, float]]
"""Step -> what was told of it."""
THROUGHPUT = "training_throughput_samples_per_sec"
_COLUMNS = 40
_MEANS = ("data_wait_share", "communication_share", "step_time_ms", "gpu_utilization_pct")
_MOST = ("memory_peak_mb", "memory_total_mb", "gpu_memory_peak_mb")
_USUAL = ("checkpoint_duration_ms", "checkpoint_background_ms", THROUGHPUT)


def pace_numbers(metrics: Metrics) -> dict[str, float]:
    """One number for a whole training of each measurement: the usual one, the mean or the most."""
    ways = [(_USUAL, median), (_MEANS, fmean), (_MOST, max)]
    return {
        name: way(values)
        for names, way in ways
        for name in names
        if (values := [told[name] for told in metrics.values() if name in told])
    }


def pace_pictures(metrics: Metrics) -> list[Picture]:
    """Rows per second, and the parts of a step's time, both by step."""
    return [*_throughput(metrics), *_parts_of_a_step(metrics)]


def _throughput(metrics: Metrics) -> list[Picture]:
    kept = _thin(metrics, THROUGHPUT)
    if not kept:
        return []
    curve = [(float(step), round(told[THROUGHPUT])) for step, told in kept.items()]
    chart = line_chart(
        "Throughput by step",
        [Series("throughput", curve)],
        Axis("step", 0.0),
        Axis("rows per second", 0.0),
        wide=True,
    )
    usual = median(value for _, value in curve)
    words = f"Usually {usual:,.0f} rows per second, over all processes; evaluations are left out."
    return [Picture("Throughput", words, chart)]


def _parts_of_a_step(metrics: Metrics) -> list[Picture]:
    kept = _thin(metrics, "data_wait_share")
    if not kept:
        return []
    time, data, others = (
        [told.get(name, 0.0) for told in kept.values()]  # a GPU's collectives are not timed
        for name in ("step_time_ms", "data_wait_share", "communication_share")
    )
    computing = [max(0.0, 1 - d - c) for d, c in zip(data, others, strict=True)]
    parts = [
        Stack("computing", _of(time, computing), "one"),
        Stack("waiting for other processes", _of(time, others), "two"),
        Stack("waiting for data", _of(time, data), "three"),
    ]
    chart = column_chart(
        "Where the time of a step goes",
        parts,
        Axis("step", names=[str(step) for step in kept]),
        Axis("milliseconds", 0.0),
    )
    words = (
        f"A step takes {median(time):,.3g} ms: {fmean(data):.1%} of it is waiting for data,"
        f" {fmean(others):.1%} waiting for other processes."
    )
    return [Picture("Where the time of a step goes", words, chart)]


def _of(whole: list[float], shares: list[float]) -> list[float]:
    return [one * share for one, share in zip(whole, shares, strict=True)]


def _thin(metrics: Metrics, name: str) -> dict[int, Mapping[str, float]]:
    """The steps that have a measurement, in order, so few that each can be seen."""
    told = {step: metrics[step] for step in sorted(metrics) if name in metrics[step]}
    every = max(1, -(-len(told) // _COLUMNS))
    return {step: told[step] for step in list(told)[::every]}
