"""MLflow, links, curves: what other tools are shown, never the truth."""
