"""What happened: run records, the ledger and its certificates, what MLflow is shown."""
