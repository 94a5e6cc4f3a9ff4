"""A release that answers over HTTP: the reference server behind ``ml-assets serve``."""
