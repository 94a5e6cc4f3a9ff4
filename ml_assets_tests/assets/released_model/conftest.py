"""What the evaluation's tests judge, and the ledger's store and decisions."""

from ml_assets_tests.assets.evaluation_report.conftest import measured, report, spec
from ml_assets_tests.records.conftest import decide, store

__all__ = ["decide", "measured", "report", "spec", "store"]
