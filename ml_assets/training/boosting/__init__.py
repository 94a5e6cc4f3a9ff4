"""Gradient boosting with LightGBM: one process, no torch. A step of training is a round."""
