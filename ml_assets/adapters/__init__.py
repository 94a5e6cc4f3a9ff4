"""The only room that speaks Dagster for all others: runs, events, metadata, resources, storage."""
