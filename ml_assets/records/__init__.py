"""The past: run records, the ledger and its certificates, and the projection in MLflow."""
