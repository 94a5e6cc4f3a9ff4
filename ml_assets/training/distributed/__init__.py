"""Several processes as one trainer: their group, the spread of a network over them, its
precision."""
