"""What other tools are shown: MLflow, links, curves. Never the truth."""
