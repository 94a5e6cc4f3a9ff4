"""How long a training takes to save, from the notice that its machine goes."""

ALLOWANCE_SECONDS = 15.0
"""From the notice: the step that is under way, its evaluation, checksums and the manifest."""
BYTES_PER_MB = 1e6


def write_seconds(state_bytes: int, mb_per_second: float) -> float:
    """How long one checkpoint is written, at so many megabytes (10^6 bytes) a second."""
    return state_bytes / BYTES_PER_MB / mb_per_second


def notice_seconds(state_bytes: int, mb_per_second: float) -> float:
    """``2 * write + 15``: at a notice one save may be in flight; it ends first, then the state of
    this very step is saved."""
    return 2 * write_seconds(state_bytes, mb_per_second) + ALLOWANCE_SECONDS
