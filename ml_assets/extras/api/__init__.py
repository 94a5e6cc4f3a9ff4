"""The REST API: runs, experiments, models and their stages, for programs; ``ml-assets ops api``."""
