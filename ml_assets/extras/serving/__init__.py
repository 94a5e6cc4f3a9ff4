"""A released model over HTTP: the reference server behind ``ml-assets serve``."""
