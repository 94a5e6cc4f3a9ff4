"""MLflow, links, curves: a projection for other tools, not the source of truth."""
