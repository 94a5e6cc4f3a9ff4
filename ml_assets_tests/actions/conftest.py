"""The ledger's store and decisions."""

from ml_assets_tests.records.conftest import decide, store

__all__ = ["decide", "store"]
