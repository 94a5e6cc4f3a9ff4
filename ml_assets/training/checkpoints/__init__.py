"""Checkpoints: whole or absent, saved beside the training, verified when they are read."""
