"""The server's counters, for Prometheus."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ml_assets.records.load_release import LoadedRelease

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


class Metrics:
    """The metrics of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        of = {"namespace": "ml_assets_serving", "registry": self.registry}
        self.requests = Counter("requests", "Requests that were answered.", ["route", "code"], **of)
        self.seconds = Histogram(
            "request_seconds", "From a request to its answer.", ["route"], buckets=_SECONDS, **of
        )
        self.rows = Counter("rows", "Rows that were predicted.", ["version"], **of)
        self.batch = Histogram(
            "batch_rows", "Rows that were computed together.", buckets=_ROWS, **of
        )
        self.waiting = Gauge("waiting_rows", "Rows that wait or are computed.", **of)
        self.restarts = Gauge("model_restarts", "Deaths of the process of the model.", **of)
        self.release = Gauge("release", "1: it answers.", ["stage", "model", "ledger_line"], **of)
        self.switches = Counter("switches", "Releases that were loaded.", **of)
        self.refusals = Counter(
            "refusals", "Releases of the ledger that could not be loaded.", **of
        )

        self.canary_errors = Counter(
            "canary_errors", "Rows that the canary could not answer; the champion did.", **of
        )
        self.aborts = Counter("aborts", "Models in canary that traffic showed to be bad.", **of)

    def serves(self, releases: Sequence[LoadedRelease]) -> None:
        """Say which models answer."""
        self.release.clear()
        for one in releases:
            line = one.entry
            self.release.labels(line.stage or "", one.model.digest, str(line.seq)).set(1)
