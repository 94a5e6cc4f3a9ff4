"""Dagster's side of what several rooms use: runs, events, metadata, resources, storage."""

import gc
from importlib import import_module

import_module("dagster")
gc.freeze()  # what it loads stays for good: no collection walks over it while specs are read
