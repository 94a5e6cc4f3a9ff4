"""Measures a training: where the time of its steps goes, its speed, its memory.

This loads no torch: boosted trees use it too. ``step_meter`` adds up the measurements of all ranks.
"""

import ctypes
import math
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ml_assets.spec.training import ProfileSpec
from ml_assets.spec.training_program.pod import TRACE
from ml_assets.training.events import EventWriter

if TYPE_CHECKING:
    from torch.profiler import profile

THROUGHPUT = "training_throughput_samples_per_sec"
"""Rows that steps trained on, over all ranks, per second of these steps, evaluations left out."""
_STATUS = Path("/proc/self/status")


class Stopwatch:
    """Adds up the seconds of ``with`` blocks, which do not nest."""

    def __init__(self) -> None:
        self._seconds = self._began = 0.0
        self._asked: float | None = None

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.add(time.perf_counter() - self._began)

    def add(self, seconds: float) -> None:
        self._seconds += seconds

    def asked(self) -> None:
        """Note that something was asked for and comes beside other work; the last call counts."""
        self._asked = time.perf_counter()

    def answered(self) -> None:
        """Note that all that was asked for is there, and that no other work was left meanwhile."""
        if self._asked is not None:
            self.add(time.perf_counter() - self._asked)
            self._asked = None

    def taken(self) -> float:
        """Seconds since it was asked before."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds


@dataclass
class Times:
    """The stopwatches of what this rank waited for."""

    data: Stopwatch = field(default_factory=Stopwatch)
    communication: Stopwatch = field(default_factory=Stopwatch)
    """Runs while a collective does; a rank that is early waits there for the others."""
    fetch: Stopwatch | None = None
    """A part of ``data``: rows that did not come in time; None: they are all here."""
    fetched_bytes: Callable[[], int] | None = None
    """How many bytes of rows came from the store since the beginning."""

    def of(self, seconds: float) -> "Spent":
        """Split the seconds of a step by what took them; the next one counts from nothing."""
        fetch = self.fetch.taken() if self.fetch else math.nan
        return Spent(seconds, self.data.taken(), self.communication.taken(), fetch)


class Spent(NamedTuple):
    """Seconds of one rank, or of several added up."""

    seconds: float
    """The whole time of the steps."""
    data: float
    communication: float
    fetch: float
    """NaN: nothing is fetched."""

    def shares(self) -> dict[str, float]:
        whole = max(self.seconds, 1e-9)
        return {
            "data_wait_share": self.data / whole,
            "communication_share": self.communication / whole,
            "fetch_wait_share": self.fetch / whole,
        }


@dataclass
class Window:
    """The times of some steps in a row, added up, as this rank measured them."""

    losses: list[float] = field(default_factory=list)
    rows: float = 0.0
    spent: Spent = field(default_factory=lambda: Spent(0.0, 0.0, 0.0, 0.0))

    def take(self, loss: float, rows: float, spent: Spent) -> None:
        """Add a step."""
        self.losses.append(loss)
        self.rows += rows
        self.spent = Spent(*(sum(pair) for pair in zip(self.spent, spent, strict=True)))

    @property
    def steps(self) -> int:
        return len(self.losses)

    def metrics(self) -> dict[str, float]:
        """Means over the steps."""
        return {
            "train_loss": sum(self.losses) / self.steps,
            **pace(self.rows, self.steps, self.spent.seconds),
            "data_loading_latency_ms": 1e3 * self.spent.data / self.steps,
            **self.spent.shares(),
        }


def pace(rows: float, steps: int, seconds: float) -> dict[str, float]:
    """The speed of some steps, as metrics."""
    return {THROUGHPUT: rows / max(seconds, 1e-9), "step_time_ms": 1e3 * seconds / max(steps, 1)}


def progress_line(unit: str, step: int, steps: int, metrics: dict[str, float]) -> str:
    """One line on how far a training is; between evaluations there is no validation loss."""
    judged = metrics.get("validation_loss")
    validation = "" if judged is None else f" validation {judged:.4f},"
    return (
        f"{unit} {step} of {steps}: train loss {metrics['train_loss']:.4f},{validation}"
        f" {metrics[THROUGHPUT]:,.0f} rows/s"
    )


def milliseconds_since(began: float) -> float:
    """Milliseconds since a reading of ``time.perf_counter``."""
    return 1e3 * (time.perf_counter() - began)


def memory_peak_mb() -> float:
    """The most memory that this process held, mapped files that it read included."""
    found = _status_mb("VmHWM:")  # getrusage counts what this process was before its exec, too
    if not math.isnan(found):
        return found
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def memory_held_mb() -> float:
    """Return what this process holds now, mapped files left out; NaN where nobody can say."""
    return _status_mb("RssAnon:")


def _status_mb(name: str) -> float:
    if _STATUS.is_file():
        for line in _STATUS.read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024 / 1e6
    return math.nan


class _Utilization(ctypes.Structure):
    """nvmlUtilization_t."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def gpu_utilization_pct(uuid: str) -> float | None:
    """Share of the last moment in which a GPU was at work, in percent; None where none can say.

    Asked of the driver's own library: no package is needed.

    Args:
        uuid: of the GPU, as ``torch.cuda.get_device_properties`` has it.
    """
    nvml = _nvml()
    if nvml is None:
        return None
    device, found = ctypes.c_void_p(), _Utilization()
    name = f"GPU-{uuid.removeprefix('GPU-')}".encode()
    if nvml.nvmlDeviceGetHandleByUUID(name, ctypes.byref(device)):
        return None
    if nvml.nvmlDeviceGetUtilizationRates(device, ctypes.byref(found)):
        return None
    return float(found.gpu)


@cache
def _nvml() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return None if library.nvmlInit_v2() else library


class Tracer:
    """Traces the steps that the spec names, operator by operator, on rank 0; None: no step.

    The trace lies beside the events, and changes no number.
    """

    def __init__(self, spec: ProfileSpec | None, rank: int, events: EventWriter) -> None:
        self._spec = spec if rank == 0 else None
        self._events = events
        self._profile: profile | None = None
        self._first = 0

    def before(self, step: int) -> None:
        """Asked before each step: begin, or be done with the step before."""
        if self._spec is None:
            return
        if self._profile is not None and step == self._first + self._spec.steps:
            self.close(step)
        if step == self._spec.at:
            import torch
            from torch.profiler import ProfilerActivity, profile

            activities = [ProfilerActivity.CPU]
            if torch.cuda.is_available():
                activities.append(ProfilerActivity.CUDA)
            self._first, self._profile = step, profile(activities=activities)
            self._profile.start()

    def close(self, step: int) -> None:
        """End a trace that is open, with the steps before this one in it."""
        if self._profile is None:
            return
        traced, self._profile = self._profile, None
        traced.stop()
        file = self._events.folder / TRACE
        draft = file.with_name(f".{TRACE}")  # torch gzips by the end of the name
        traced.export_chrome_trace(str(draft))
        os.replace(draft, file)
        self._events.trace(self._first, step - self._first, file)
