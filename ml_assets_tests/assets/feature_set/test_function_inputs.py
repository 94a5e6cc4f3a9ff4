"""What a function reads of each partition."""

from datetime import UTC, datetime

import pytest

from ml_assets.assets.feature_set.function_inputs import feature_reads
from ml_assets.assets.raw_snapshot.sources import Sources
from ml_assets.settings import DEMO_PIPELINES
from ml_assets_tests.worlds.opened import pipeline_of


def test_a_partition_that_has_passed_since_is_read_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon declares its assets once and makes partitions for months."""
    reads = feature_reads(pipeline_of(DEMO_PIPELINES / "flight_delays"))
    for now, partition in (
        (datetime(2013, 3, 1, tzinfo=UTC), "2013-02-18"),
        (datetime(2013, 4, 1, tzinfo=UTC), "2013-03-18"),
    ):
        monkeypatch.setattr(Sources, "now", lambda now=now: now)
        window, flights = reads.window(partition), reads.addresses(partition)["flights"]
        assert window.key == flights[-1].partition == partition
        assert len(flights) == 5, "the look-back is of four weeks"
