"""Writes the curves of a session to MLflow while it trains, in a thread of its own.

Followers of the training never wait for MLflow: a slow server, or its import, delays nobody.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime

from ml_assets.records.tracking.mlflow import Logged, Tracking, Unavailable


class LiveCurves:
    """Tells one thing at a time; what comes meanwhile is in what is told next."""

    def __init__(self, tracking: Tracking, open_run: Callable[[], str | Unavailable]) -> None:
        self._tracking = tracking
        self._open_run = open_run
        self._thread = ThreadPoolExecutor(1, "mlflow")
        self._run: str | None = None
        self._sending: Future[Logged | Unavailable]
        try:
            self._sending = self._thread.submit(self._send, {}, {})
        except BaseException:  # a signal while the thread begins: nobody else would ever end it
            self._thread.shutdown(wait=False)
            raise

    def tell(
        self, metrics: Mapping[int, Mapping[str, float]], times: Mapping[int, datetime]
    ) -> Logged | Unavailable | None:
        """Send the curves so far, unless a message is under way.

        Returns:
            What became of the message before; None: it is still under way.
        """
        if not self._sending.done():
            return None
        before = self.last
        copy = {step: dict(told) for step, told in metrics.items()}
        self._sending = self._thread.submit(self._send, copy, dict(times))
        return before

    @property
    def last(self) -> Logged | Unavailable:
        """Return what became of the last message, when it is through."""
        return self._sending.result()

    def close(self) -> None:
        """Wait for the message under way: its requests have timeouts."""
        self._thread.shutdown(wait=True)

    def _send(
        self, metrics: Mapping[int, Mapping[str, float]], times: Mapping[int, datetime]
    ) -> Logged | Unavailable:
        silent = self._tracking.silent
        if silent is not None:
            return silent
        if self._run is None:
            opened = self._open_run()
            if isinstance(opened, Unavailable):
                return opened
            self._run = opened
        return self._tracking.log_metrics(self._run, metrics, times) if metrics else Logged()
