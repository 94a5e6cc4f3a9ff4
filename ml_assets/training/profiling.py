"""A trace of a few steps, operator by operator, beside the events; it changes no number."""

import os

import torch
from torch.profiler import ProfilerActivity, profile

from ml_assets.spec.program.pod import TRACE
from ml_assets.spec.training import ProfileSpec
from ml_assets.training.events import EventWriter


class Tracer:
    """Traces the steps that the spec names, on rank 0; None: no step."""

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
