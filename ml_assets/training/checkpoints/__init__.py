"""Checkpoints: whole or absent, saved in the background, verified when they are read."""
