"""Processes as one trainer: their group, how a network is spread over them, in which precision."""
