"""When a checkpoint is due by the clock, beside those that evaluations save."""

import time


class CheckpointClock:
    """Counts the minutes since the last checkpoint; None: evaluations alone save.

    A clock changes when training is saved and never what is trained. Of several ranks the first
    one's clock counts, and its word rides on the step's sum as the notice to stop does.
    """

    def __init__(self, minutes: float | None) -> None:
        self._seconds = None if minutes is None else 60 * minutes
        self._since = time.monotonic()

    @property
    def due(self) -> bool:
        return self._seconds is not None and time.monotonic() - self._since >= self._seconds

    def saved(self) -> None:
        """A checkpoint was saved, for whatever reason: count from here."""
        self._since = time.monotonic()
