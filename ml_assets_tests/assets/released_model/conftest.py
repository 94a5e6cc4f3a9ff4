"""The same spec, report and measurements that the evaluation's tests judge."""

from ml_assets_tests.assets.evaluation_report.conftest import measured, report, spec

__all__ = ["measured", "report", "spec"]
