"""How good a model is, against what it must be held, and whether it may be released.

Pure functions over arrays and records: nothing here reads a store, a clock or the environment.
"""
