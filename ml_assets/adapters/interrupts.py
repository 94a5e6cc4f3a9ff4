"""Signals that arrived while a block ran, whatever became of the exceptions that they raised."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_NUMBERS = {signal.SIGINT, signal.SIGTERM}


class Arrived:
    """Says whether SIGINT or SIGTERM has arrived since the block began."""

    def __init__(self, pipe: int | None) -> None:
        self._pipe = pipe
        self._seen = False

    def __bool__(self) -> bool:
        while self._pipe is not None and not self._seen:
            try:
                read = os.read(self._pipe, 64)
            except BlockingIOError:
                break
            self._seen = any(number in _NUMBERS for number in read)
        return self._seen


@contextmanager
def interrupts_noted() -> Iterator[Arrived]:
    """Note the signals of the block; in another thread than the main one there are none.

    Dagster raises from its signal handler. Where that is below a Polars call which calls back into
    Python (to make a data type, to run a function of a team), Polars panics or blames the
    function: neither says that somebody pressed Ctrl-C. Python notes each signal in a pipe.
    """
    if threading.current_thread() is not threading.main_thread():
        yield Arrived(None)
        return
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield Arrived(reading)
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)
        os.close(reading)
