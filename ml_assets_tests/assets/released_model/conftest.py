"""The report page is shown with the report, spec and measurements that the gates are tested with."""

from ml_assets_tests.assets.evaluation_report.conftest import measured, report, spec

__all__ = ["measured", "report", "spec"]
