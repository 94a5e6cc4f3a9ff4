"""Several processes as one trainer: their group, how a network spreads over it, precision."""
