"""Extras that a first pipeline does not need: each is loaded when a spec or a command asks for
it."""
