"""What was run: run records, their history, experiments and what they cost, provenance."""
