"""Ctrl-C in the middle of a Polars call: it takes effect once the call has returned."""

import _thread
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], object]

_AGAIN_S = 0.02
_NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interrupts_outside_polars() -> Iterator[None]:
    """Hold the handlers that Dagster sets from raising below a Polars call.

    Polars calls back into Python (to make a data type, to run a function of a team). An exception
    that a signal raises there is a panic of its Rust side, or is told as the function's fault.
    """
    from dagster._utils import interrupts

    before = {number: signal.getsignal(number) for number in _NUMBERS}
    replace = interrupts._replace_interrupt_signal  # its one way to set a handler
    interrupts._replace_interrupt_signal = lambda handler: replace(_held(handler))
    try:
        yield
    finally:
        interrupts._replace_interrupt_signal = replace
        if threading.current_thread() is threading.main_thread():  # nobody else set any
            for number, handler in before.items():
                signal.signal(number, handler)


class _Held:
    """A signal handler that comes again in a moment where a Polars call is under way."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> object:
        if not _is_below_polars(frame):
            return self._handler(number, frame)
        again = threading.Timer(_AGAIN_S, _thread.interrupt_main, (number,))
        again.daemon = True
        again.start()
        return None


def _held(handler: Handler | int | None) -> Handler | int | None:
    """SIG_IGN, SIG_DFL and what is held already stay as they are."""
    if not callable(handler) or isinstance(handler, (_Held, signal.Handlers)):
        return handler
    return _Held(handler)


def _is_below_polars(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == "polars":
            return True
        frame = frame.f_back
    return False
