"""Boosted trees, by LightGBM or XGBoost: one process, no torch. A step of training is a round."""
